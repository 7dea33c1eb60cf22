"""Who listens to the cells of a command: progress bars on standard error, trackers, a page in the browser."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import typer
from rich import progress
from rich.console import Console
from rich.table import Column

from fedade.core.events import CellInfo, Listener, Listeners, Report, RowsOnDemand
from fedade.listeners import trackers_named
from fedade.listeners.live_page import serve_in_background
from fedade.listeners.stored import stored_cells

ESTIMATE_SECONDS = 1800.0
"""Seconds back from which the time left is told: single cells may take minutes."""
MOST_BARS = 8
"""Cells with a bar of their own; more at once would fill the screen."""


def _bars(quiet: bool) -> progress.Progress:
    columns = (
        # Gives way to the others on a narrow screen.
        progress.TextColumn(
            "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
        progress.BarColumn(bar_width=12),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[note]}"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    return progress.Progress(
        *columns, console=console, disable=quiet, speed_estimate_period=ESTIMATE_SECONDS, expand=True
    )


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Report]:
    """A bar per piece of work, with the time that is left."""
    with _bars(quiet) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total, note="")
            bars.update(tasks[title], completed=done)

        yield report


class CellBars(Listener):
    """One bar for all cells, with what is running and failed, and one for each that is under way."""

    def __init__(self, name: str, bars: progress.Progress) -> None:
        self._name, self._bars = name, bars
        self._all: progress.TaskID | None = None
        self._tasks: dict[str, progress.TaskID] = {}
        self._running: set[str] = set()
        self._settled = self._failed = 0

    def on_plan(self, cells: int, done: int, failed: int) -> None:
        self._settled, self._failed = done + failed, failed
        self._bars.start()
        self._all = self._bars.add_task(self._name, total=cells, completed=self._settled, note=self._note())

    def on_preparation(self, title: str, done: int, of: int) -> None:
        self._bars.start()
        self._advance(title, title, done, of)
        if done >= of:
            self._remove(title)

    def on_start(self, cell: CellInfo, timestep: int) -> None:
        self._running.add(cell.address)
        if len(self._tasks) < MOST_BARS:
            self._advance(cell.address, cell.title, timestep, cell.num_timesteps)
        self._show()

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        if cell.address in self._tasks:
            self._advance(cell.address, cell.title, timestep, cell.num_timesteps)

    def on_end(self, cell: CellInfo, result: Mapping[str, Any]) -> None:
        self._end(cell)

    def on_failure(self, cell: CellInfo, reason: str) -> None:
        self._failed += 1
        self._end(cell)

    def _end(self, cell: CellInfo) -> None:
        self._settled += 1
        self._running.discard(cell.address)
        self._remove(cell.address)
        self._show()

    def _advance(self, key: str, title: str, done: int, of: int) -> None:
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(title, total=of, note="")
        self._bars.update(self._tasks[key], completed=done)

    def _remove(self, key: str) -> None:
        if key in self._tasks:
            self._bars.remove_task(self._tasks.pop(key))

    def _show(self) -> None:
        if self._all is not None:
            self._bars.update(self._all, completed=self._settled, note=self._note())

    def _note(self) -> str:
        return f"{len(self._running)} running, {self._failed} failed"


@contextmanager
def cell_bars(name: str, quiet: bool) -> Iterator[CellBars]:
    """Bars that appear when there is something to show: what is refused before is told in one line."""
    bars = _bars(quiet)
    try:
        yield CellBars(name, bars)
    finally:
        if bars.live.is_started:
            bars.stop()


@contextmanager
def listening(folder: Path, quiet: bool, track: list[str] | None, watch: bool) -> Iterator[Listener]:
    """All listeners of a command as one; trackers write what they hold back, whatever ends the command."""
    with ExitStack() as held:
        trackers = trackers_named(track or [], folder)
        for tracker in trackers:
            held.callback(tracker.close)
        if track and any(cell.result is not None for cell in stored_cells(folder)):
            typer.echo(
                f"fedade: what was finished before is recorded by `fedade export {folder} --to {track[0]}`", err=True
            )
        if watch:
            address = held.enter_context(serve_in_background(folder))
            typer.echo(f"watch: {address}", err=True)
        bars = held.enter_context(cell_bars(folder.name, quiet))
        yield Listeners([bars, *trackers])
