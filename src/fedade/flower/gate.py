"""The one door of a SuperLink to the outside: what nodes need, and nothing that submits, registers or runs.

Flower serves nodes, operators and its own programs on one port, of which only nodes have to prove who they are. So the
SuperLink listens on loopback, and this forwards the calls of nodes to it.
"""

import logging
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedade.flower.certificates import CA
from fedade.flower.signatures import with_signature

log = logging.getLogger("fedade.gate")

FLEET_CALL = re.compile(r"/v1/fleet/[a-z-]+")
GET_APP = "/v1/fleet/get-fab"
MOST_BYTES = 32 * 2**20
"""Of one call. Flower cuts what it sends into smaller pieces."""
CALL_SECONDS = 60.0
_HOP_BY_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"te", b"upgrade"}


@dataclass
class Gate:
    """Forwards calls of nodes to a SuperLink on this host."""

    superlink: str
    """Its address, `host:port`."""
    certificates: Path
    most_bytes: int = MOST_BYTES
    transport: httpx.AsyncBaseTransport | None = None
    """Instead of the network."""

    def app(self) -> Starlette:
        """As an ASGI application."""

        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            verify = ssl.create_default_context(cafile=str(self.certificates / CA))
            async with httpx.AsyncClient(
                base_url=f"https://{self.superlink}",
                verify=verify,
                timeout=CALL_SECONDS,
                transport=self.transport,
                trust_env=False,
            ) as self._client:
                yield

        return Starlette(routes=[Route("/{path:path}", self._answer, methods=_METHODS)], lifespan=lifespan)

    async def _answer(self, request: Request) -> Response:
        raw = request.scope["raw_path"].decode("latin-1")  # as it came: `..` and escapes have no business here
        if request.method != "POST" or not FLEET_CALL.fullmatch(raw):
            who = request.client.host if request.client else "somebody"
            log.warning("refused %s %s of %s: nodes have no such call", request.method, raw[:100], who)
            return Response("nodes have no such call here\n", 403)
        content = await self._content(request)
        if content is None:
            return Response(f"more than {self.most_bytes} bytes\n", 413)
        headers = [(name, value) for name, value in request.headers.raw if name not in _HOP_BY_HOP]
        try:
            answer = await self._client.post(raw, content=content, headers=headers)
        except httpx.TransportError:
            return Response("the SuperLink does not answer\n", 503)  # nodes try again
        body = answer.content
        if raw == GET_APP and answer.is_success:
            body = with_signature(body, self.certificates)
        return Response(body, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _content(self, request: Request) -> bytes | None:
        """The body of a call; None where it is too large, of which no more than the limit is read."""
        if int(request.headers.get("content-length", 0)) > self.most_bytes:
            return None
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > self.most_bytes:
                return None
        return bytes(content)


_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
