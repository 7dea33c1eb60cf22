"""How far a suite is, on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

MEMORY = 1800.0
"""Seconds back from which the time left is told: single cells may take minutes."""


class SuiteBars:
    """One bar for all cells, with what is running and failed, and one for each task under way."""

    def __init__(self, suite: str, bars: Progress) -> None:
        self._suite = suite
        self._bars = bars
        self._cells: TaskID | None = None
        self._running: dict[str, TaskID] = {}
        self._settled = 0
        self._failed = 0

    def begin(self, total: int, done: int, failed: int) -> None:
        """Cells in all, and those that earlier runs have settled."""
        self._settled, self._failed = done + failed, failed
        self._bars.start()
        self._cells = self._bars.add_task(self._suite, total=total, completed=self._settled, note=self._note())

    def advance(self, title: str, done: int, of: int) -> None:
        """A task under way."""
        if title not in self._running:
            self._running[title] = self._bars.add_task(title, total=of, note="")
        self._bars.update(self._running[title], completed=done)
        if done >= of:
            self._bars.remove_task(self._running.pop(title))
        self._show()

    def end(self, title: str, done: int, failed: int) -> None:
        """A task that ended, with the cells that it settled."""
        if title in self._running:
            self._bars.remove_task(self._running.pop(title))
        self._settled += done + failed
        self._failed += failed
        self._show()

    def _show(self) -> None:
        if self._cells is not None:
            self._bars.update(self._cells, completed=self._settled, note=self._note())

    def _note(self) -> str:
        return f"{len(self._running)} running, {self._failed} failed"


@contextmanager
def bench_progress(suite: str, quiet: bool) -> Iterator[SuiteBars]:
    """Bars that appear when the suite begins: what is refused before is told in one line."""
    columns = (
        # Gives way to the others on a narrow screen.
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bars = Progress(*columns, console=Console(stderr=True), disable=quiet, speed_estimate_period=MEMORY, expand=True)
    try:
        yield SuiteBars(suite, bars)
    finally:
        if bars.live.is_started:
            bars.stop()
