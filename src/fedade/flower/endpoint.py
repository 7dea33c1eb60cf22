"""HTTP on a Unix socket in a client's own folder: `predict` and `status`, for programs on the same host. The standard
library is enough: `curl --unix-socket STATE/node.sock http://node/predict --data-binary @batch.npy`."""

import http.client
import io
import json
import logging
import math
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import numpy.lib.format as npy
from numpy.typing import NDArray

from fedade.core import storage
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

    def log_message(self, *_: Any) -> None:
        """Requests are counted, not logged."""


class NodeClient:
    """Asks a node on this host. It may be used for many requests, by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: "io.BufferedRWPair[Any, Any] | None" = None

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Class probabilities `[n, K]` of a batch."""
        return array_of(self._ask("POST", "/predict", bytes_of(inputs)))

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._ask("GET", "/status"))
        return told

    def __enter__(self) -> "NodeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _ask(self, verb: str, path: str, body: bytes = b"") -> bytes:
        """The content of an answer. Head and body go in one piece: in two, the node would be woken twice."""
        head = f"{verb} {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        try:
            connection = self._connected()
            connection.write(head + body)
            connection.flush()
            code, headers, content = _response(connection)
        except OSError:
            self._close()
            raise
        if headers.get("connection") == "close":
            self._close()
        if code != http.client.OK:
            raise FedadeError(content.decode(errors="replace").strip())
        return content

    def _connected(self) -> "io.BufferedRWPair[Any, Any]":
        if self._connection is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with opened:  # which the file below keeps open
                opened.settimeout(ASK_SECONDS)
                opened.connect(str(self._path))
                self._connection = opened.makefile("rwb")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):  # what could not be sent
                self._connection.close()
            self._connection = None


def _response(connection: "io.BufferedRWPair[Any, Any]") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of an answer of our own server; `http.client` would take a multiple of the time."""
    lines = list(iter(lambda: connection.readline().decode("latin-1").rstrip(), ""))
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    content = connection.read(int(headers.get("content-length", 0)))
    if not lines or len(content) < int(headers.get("content-length", 0)):
        raise ConnectionResetError("the node ended while it answered")
    return int(lines[0].split()[1]), headers, content


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
    """The array of a `.npy` file, in its place, or `inputs` of a `.npz` file."""
    try:
        with storage.reading_arrays():
            if not content.startswith(npy.MAGIC_PREFIX):
                found: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)["inputs"]
                return found
            begin = _header_end(content)
            shape, fortran, kind = _layout(content[:begin])
            return np.frombuffer(content, kind, math.prod(shape), begin).reshape(shape, order="F" if fortran else "C")
    except (OSError, ValueError, LookupError) as error:
        raise FedadeError(f"the inputs cannot be read ({error}); send a .npy file, or .npz with `inputs`") from error


def bytes_of(array: NDArray[Any]) -> bytes:
    if array.dtype.hasobject:
        raise FedadeError(f"an array of {array.dtype} cannot be sent; convert it to numbers")
    return _header(array.dtype.str, array.shape) + array.tobytes()


# Batches come in few shapes, and NumPy takes longer to read a header than to copy a small batch.


def _header_end(content: bytes) -> int:
    size = "<H" if content[6] == 1 else "<I"
    begin = npy.MAGIC_LEN + struct.calcsize(size)
    return begin + int(struct.unpack(size, content[npy.MAGIC_LEN : begin])[0])


@lru_cache(maxsize=64)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    file = io.BytesIO(header)
    version = npy.read_magic(file)
    shape, fortran, kind = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if kind.hasobject:
        raise ValueError("it holds objects, which are never unpickled")
    return shape, fortran, kind


@lru_cache(maxsize=64)
def _header(kind: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()
