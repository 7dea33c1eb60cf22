"""What a service manager starts: a SuperLink behind its gate, and the node of a client.

Flower serves nodes, operators and its own programs on one port, of which only nodes have to prove who they are. So the
SuperLink listens on loopback, and the gate forwards the calls of nodes to it, and nothing that submits or registers.
"""

import logging
import re
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedade.core.errors import FedadeError
from fedade.flower.admission import with_signature
from fedade.flower.certificates import CA, NODES, SERVER, SERVER_KEY, TRUSTED, NodeFiles
from fedade.flower.federation import FlowerFederation, wait_for_port
from fedade.flower.fleet_link import Address
from fedade.flower.node import run_nodes
from fedade.flower.processes import Process, ProcessGroup, ended_by_signals

log = logging.getLogger("fedade.gate")
FLEET_CALL = re.compile(r"/v1/fleet/[a-z-]+")
GET_APP = "/v1/fleet/get-fab"
MOST_BYTES = 32 * 2**20
"""Of one call. Flower cuts what it sends into smaller pieces."""
CALL_SECONDS = 60.0
_VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
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

        return Starlette(routes=[Route("/{path:path}", self._answer, methods=_VERBS)], lifespan=lifespan)

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


LOOK_SECONDS = 2.0


def run_superlink(certificates: Path, home: Path, host: str, port: int, local_port: int) -> None:
    """Run a SuperLink on loopback, behind the gate that nodes come through, until a signal, or until the SuperLink
    ends, which is an error: a service manager starts both again. The certificates' folder holds `ca.crt`, the server's
    certificate and key, `nodes/NAME/node.key.pub` and `apps/`."""
    certificate, key = certificates / SERVER, certificates / SERVER_KEY
    for path in (certificate, key):
        if not path.is_file():
            raise FedadeError(f"{path} is missing; make it with `fedade flower certs`")
    federation = FlowerFederation(home, certificates, local_port)
    federation.write_connection()
    with ended_by_signals(as_interrupt=True), ProcessGroup() as processes:
        link = processes.start(federation.superlink())
        wait_for_port(link, local_port)
        federation.register()
        app = Gate(federation.address, certificates).app()
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", ssl_certfile=certificate, ssl_keyfile=key
        )
        _serve(uvicorn.Server(config), federation, link)
        if link.ended() is not None:
            raise FedadeError(f"the SuperLink ended ({link.ended()}): {link.last_words()}; log: {link.log}")


def _serve(server: uvicorn.Server, federation: FlowerFederation, link: Process) -> None:
    over = threading.Event()

    def key_files() -> dict[Path, int]:
        keys = (federation.certificates or Path()).glob(f"{NODES}/*/node.key.pub")
        return {path: path.stat().st_mtime_ns for path in keys}

    def look() -> None:
        """Notice a SuperLink that ended, and keys that came or went."""
        known = key_files()
        while not over.wait(LOOK_SECONDS):
            if link.ended() is not None:
                server.should_exit = True
                return
            if (now := key_files()) != known:
                known = now
                try:
                    federation.register()
                except FedadeError as error:
                    log.error("%s", error)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        server.run()
    finally:
        over.set()
        watching.join()


def run_client(certificates: Path, superlink: str, node_config: Mapping[str, str]) -> None:
    """Be the node of a client, which takes part in runs of apps that the fleet's operator has signed and no others."""
    files = NodeFiles.of(certificates, node_config["client"])
    for path in (certificates / TRUSTED, files.key):
        if not path.is_file():
            raise FedadeError(f"{path} is missing; copy it from where `fedade flower certs` wrote it")
    run_nodes([(Address(superlink, certificates / CA, files.key, certificates / TRUSTED), node_config)])
