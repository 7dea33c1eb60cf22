"""A server for the live page, for this machine alone."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedade.core.errors import FedadeError
from fedade.listeners.live_page import live_page, live_state

HOST = "127.0.0.1"
LAST_LOOK = 5.0
"""Seconds that a page that is open has, after the end of a run, to fetch how it ended."""


class LiveServer(ThreadingHTTPServer):
    """Answers with the page of a folder and its state."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise FedadeError(f"port {port} cannot be used ({error}); choose another with --port") from error
        self.folder = folder
        self.visited, self.told_the_end = threading.Event(), threading.Event()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        self.server.visited.set()
        folder = self.server.folder
        # Another site may have its own name point here, and would then be allowed to read the answer.
        if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/state":
            self._answer("application/json", json.dumps(live_state(folder)).encode())
        elif self.path == "/":
            over = live_state(folder)["over"]
            try:
                self._answer("text/html; charset=utf-8", live_page(folder))
            except FedadeError as error:  # files that are being moved; the page asks again
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            if over:
                self.server.told_the_end.set()
        else:
            self._answer("text/plain", b"")  # browsers ask for an icon

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nothing: the terminal belongs to the run."""


@contextmanager
def serve_in_background(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a folder's live page, and give its address; the folder may be empty or not there yet."""
    with LiveServer(folder, port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.address
            if server.visited.is_set() and live_state(folder)["over"]:
                server.told_the_end.wait(LAST_LOOK)
        finally:
            server.shutdown()
