"""A page that follows a run, and a server for it, for this machine alone."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.listeners.stored import StoredCell, rows_of, stored_cells
from fedade.methods import method_class
from fedade.reporting import names
from fedade.reporting.page import Page, render
from fedade.reporting.page.scenes import Recording, Scene, complete, pack
from fedade.reporting.rendering import Column, Table, TableCell, TableRow
from fedade.reporting.results import Result, result, rows, run_tables
from fedade.runner.running import PLAN

_STATES = ("running", "failed", "waiting", "done")
_SCENARIO = ("dataset", "kind", "source", "schedule")
_APART = {*_SCENARIO, "suite", "method", "seed"}
_QUESTION = (
    "What is known so far. A cell is one method and seed on one scenario; numbers of running cells are means over the "
    "timesteps until now, and will change."
)


def live_state(folder: Path) -> dict[str, Any]:
    """A version that changes with whatever the page shows, and whether every cell has ended."""
    files = [folder / PLAN, *(folder / "cells").rglob("*.json"), *(folder / "cells").rglob("*.parquet")]
    stamps = sorted(f"{path} {_modified(path)}" for path in files)
    cells = stored_cells(folder)
    over = bool(cells) and not _planned(folder, cells) and all(cell.state in ("done", "failed") for cell in cells)
    return {"version": hashlib.blake2b("\n".join(stamps).encode(), digest_size=8).hexdigest(), "over": over}


def live_page(folder: Path) -> bytes:
    """The whole page, which asks for `state` every few seconds and follows it."""
    state = live_state(folder)  # before the rows: what comes meanwhile makes another version
    cells = stored_cells(folder)
    planned = _planned(folder, cells)
    counts = Counter([*(cell.state for cell in cells), *("waiting" for _ in planned)])
    scenes: dict[tuple[tuple[str, str], ...], list[tuple[Recording, Result]]] = {}
    for cell in cells:
        if cell.state in ("running", "done") and (known := _known(cell)) is not None:
            told = cell.info.labels
            labels = ((name, names.title(name, told[name])) for name in _SCENARIO if name in told)
            scenes.setdefault(tuple(labels), []).append(known)
    shown = [Scene(dict(labels), [recording for recording, _ in members]) for labels, members in scenes.items()]
    packed = pack(shown, tiers=())
    page = Page(
        title=folder.resolve().name,
        question=_QUESTION,
        facts={state: str(counts[state]) for state in _STATES},
        notes=packed.broken,
        tables=[_cell_table(cells, planned)],
        scene_tables=[
            run_tables(rows([cell_result for _, cell_result in members]), ", ".join(value for _, value in labels))
            for labels, members in scenes.items()
        ],
        scenes=replace(packed, index={**packed.index, **state}),
        config=storage.read_yaml(folder / "config.yaml") if (folder / "config.yaml").is_file() else {},
        command=f"fedade watch {folder}",
        live=True,
    )
    return render(page).encode()


def _planned(folder: Path, cells: Sequence[StoredCell]) -> list[str]:
    """Titles of the cells that have not begun."""
    plan = storage.read_json(folder / PLAN)["cells"] if (folder / PLAN).is_file() else {}
    begun = {cell.info.address for cell in cells}
    return [str(title) for address, title in plan.items() if address not in begun]


def _cell_table(cells: Sequence[StoredCell], planned: Sequence[str]) -> Table:
    told = [(cell.info.title, cell.state, cell.reached, cell.info.num_timesteps, cell.reason or "") for cell in cells]
    told += [(title, "waiting", 0, 0, "") for title in planned]

    def row(title: str, state: str, step: int, of: int, reason: str) -> TableRow:
        reached = TableCell(step, text=f"{step} of {of}") if step else TableCell()
        return TableRow(title, (TableCell(text=state), reached, TableCell(text=reason)))

    columns = tuple(Column(name, nothing="") for name in ("state", "timestep", "reason"))
    ordered = sorted(told, key=lambda line: _STATES.index(line[1]))
    return Table("Cells", columns, tuple(row(*line) for line in ordered), corner="cell")


def _known(cell: StoredCell) -> tuple[Recording, Result] | None:
    """Curves and numbers of a cell, so far or in the end, under a name that tells its row from others beside it."""
    path, labels = cell.info.folder / "trace.parquet", cell.info.labels
    name = ", ".join(names.title(label, value) for label, value in labels.items() if label not in _APART)
    if cell.result is not None:
        cell_result = Result(**cell.result)._replace(method=name)
        read = partial(_finished_rows, path, _modified(path))
        return Recording(name, cell_result.seed, cell_result.oracle, read), cell_result
    table = rows_of(cell.info)
    if table is None:
        return None
    try:
        oracle = method_class(str(labels["method"]))().card.oracle
    except FedadeError:  # a method from outside that is not at hand where the page is
        oracle = False
    latest = max(map(_modified, path.parent.rglob("rows-*")), default=0)
    seconds = max(0, latest - _modified(path.with_name("cell.json"))) / 1e9
    cell_result = result(table, name, int(labels["seed"]), oracle, seconds)
    return Recording(name, cell_result.seed, oracle, partial(_shown, table, path)), cell_result


@lru_cache(maxsize=512)
def _finished_rows(path: Path, _version: int) -> pa.Table:
    """Rows of a finished cell, which are read once and not whenever another cell moves."""
    return _shown(trace.read(path), path)


def _shown(table: pa.Table, path: Path) -> pa.Table:
    kept = [name for name in table.column_names if name.startswith("accuracy") or name in ("client", "timestep", "n")]
    return complete(table, path).select(kept)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # gone meanwhile, or not yet there
        return 0


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
            return
        try:
            if self.path == "/state":
                self._answer("application/json", json.dumps(live_state(folder)).encode())
            elif self.path == "/":
                over = live_state(folder)["over"]
                self._answer("text/html; charset=utf-8", live_page(folder))
                if over:
                    self.server.told_the_end.set()
            else:
                self._answer("text/plain", b"")  # browsers ask for an icon
        except FedadeError as error:  # files that are being moved, or damaged; the page asks again
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))

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
            with suppress(FedadeError):  # a damaged folder has no last page
                if server.visited.is_set() and live_state(folder)["over"]:
                    server.told_the_end.wait(LAST_LOOK)
        finally:
            server.shutdown()
