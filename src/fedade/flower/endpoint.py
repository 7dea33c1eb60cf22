"""HTTP on a Unix socket in a client's own folder: `predict` and `status`, for programs on the same host.

The standard library is enough: `curl --unix-socket STATE/node.sock http://node/predict --data-binary @batch.npy`.
"""

import http.client
import io
import json
import logging
import socket
import socketserver
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.flower.serving import NotServedError, Served, restore

log = logging.getLogger("flwr.fedade")

SOCKET = "node.sock"
LONGEST_PATH = 100
"""Of a socket; operating systems allow little more."""
MOST_BYTES = 2**30
ASK_SECONDS = 60.0


@contextmanager
def served_at(path: Path, served: Served) -> Iterator[None]:
    """Answer on a socket while the block lasts; a path that is too long is told, and costs only the endpoint."""
    if len(str(path)) > LONGEST_PATH:
        log.warning("%s is too long for a socket, predictions are not served; give a shorter state-dir", path)
        yield
        return
    path.unlink(missing_ok=True)  # of a process that was killed: the node's lock says that there is no other

    class Handler(_Handler):
        answering = served

    with _Server(str(path), Handler) as server:
        path.chmod(0o600)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and content in one piece
    answering: Served

    def do_GET(self) -> None:
        """`/status`."""
        if self.path == "/status":
            self._send(200, "application/json", json.dumps(self.answering.status()).encode())
        else:
            self._refuse(404, "there are /status and /predict")

    def do_POST(self) -> None:
        """`/predict`: a `.npy` or `.npz` file in, the probabilities as a `.npy` file out."""
        size = int(self.headers.get("Content-Length") or 0)
        if self.path != "/predict" or not 0 < size <= MOST_BYTES:
            # Closed, because the rest of the request is not read.
            self._refuse(400, f"POST /predict takes a .npy file of at most {MOST_BYTES} bytes", close=True)
            return
        try:
            answer = self.answering.predict(array_of(self.rfile.read(size)))
        except NotServedError as error:
            self._refuse(503, str(error))
        except FedadeError as error:
            self._refuse(400, str(error))
        else:
            self._send(200, "application/octet-stream", bytes_of(answer))

    def _refuse(self, code: int, reason: str, *, close: bool = False) -> None:
        self._send(code, "text/plain; charset=utf-8", f"{reason}\n".encode(), close=close)

    def _send(self, code: int, kind: str, content: bytes, *, close: bool = False) -> None:
        self.send_response_only(code)  # without a date and the server's name
        if close:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        """Whoever can open the socket: its own user."""
        return "local"

    def log_message(self, *_: Any) -> None:
        """Requests are counted, not logged."""


class NodeClient:
    """Asks a node on this host. It may be used for many requests, by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Class probabilities `[n, K]` of a batch."""
        return array_of(self._ask("POST", "/predict", bytes_of(inputs)))

    def status(self) -> dict[str, Any]:
        """How the node's client is doing."""
        told: dict[str, Any] = json.loads(self._ask("GET", "/status"))
        return told

    def __enter__(self) -> "NodeClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _ask(self, verb: str, path: str, body: bytes = b"") -> bytes:
        """The content of an answer. Head and body go in one piece: in two, the node would be woken twice."""
        head = f"{verb} {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        try:
            connection = self._connected()
            connection.sendall(head + body)
            response = http.client.HTTPResponse(connection, method=verb)
            response.begin()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._close()
            raise
        if response.will_close:
            self._close()
        if response.status != http.client.OK:
            raise FedadeError(content.decode(errors="replace").strip())
        return content

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(ASK_SECONDS)
            self._socket.connect(str(self._path))
        return self._socket

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@contextmanager
def node_or_state(state: Path) -> "Iterator[NodeClient | Served]":
    """Whoever answers for a client: its node if it runs, else the newest state on disk."""
    if (state / SOCKET).exists():
        with NodeClient(state / SOCKET) as node:
            try:
                node.status()
            except OSError:  # the socket of a process that was killed
                log.debug("nobody listens at %s", state / SOCKET)
            else:
                yield node
                return
    served = Served(state.name)
    if not restore(served, state):
        raise FedadeError(f"{state} holds no state of a client; name the folder below state-dir that has its name")
    yield served


def array_of(content: bytes) -> NDArray[Any]:
    """The array of a `.npy` file, or `inputs` of a `.npz` file."""
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
        array: NDArray[Any] = found if isinstance(found, np.ndarray) else found["inputs"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise FedadeError(f"the inputs cannot be read ({error}); send a .npy file, or .npz with `inputs`") from error
    return array


def bytes_of(array: NDArray[Any]) -> bytes:
    """An array as a `.npy` file."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()
