"""What happens while cells run, told to whoever listens: progress bars, checkpoints, trackers, live pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from fedade.core.trace import Rows

Report = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""

RowsOnDemand = Callable[[], Rows]
"""Gives the rows of a timestep; on a GPU it waits for the device, so that who does not ask costs nothing."""


@dataclass(frozen=True)
class CellInfo:
    """What listeners may know of a cell: one method and seed on one scenario."""

    address: str
    """Its fingerprint, which two cells share only if they compute the same."""
    title: str
    """One line for people."""
    labels: Mapping[str, str | int | float]
    """Its place in a table: row, method, seed, dataset and so on."""
    folder: Path
    num_timesteps: int
    settings: Mapping[str, Any]
    """All settings as plain values."""


class Listener:
    """Hears of cells; what it does not care for, it need not implement.

    Whatever a listener raises stops the cell, and is recorded as the reason. In a run with several processes a listener
    lives in the first one, and the others send it their events.

    >>> class Printing(Listener):
    ...     wants_rows = True
    ...
    ...     def on_rows(self, cell, timestep, rows):
    ...         print(cell.title, timestep, rows()["accuracy_post"].mean() >= 0)
    >>> import fedade, tempfile
    >>> small = {"num_clients": 4, "num_timesteps": 2, "samples": 10, "pretraining": {"epochs": 1}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fedade.simulate(["source"], {"scenario": small}, listeners=[Printing()], out=folder)
    source 1 True
    source 2 True
    """

    wants_rows: bool = False
    """Whether `on_rows` reads its rows: only then do other processes send them."""

    def on_plan(self, cells: int, done: int, failed: int) -> None:
        """How many cells are asked for, and how many of them earlier runs have settled."""

    def on_preparation(self, title: str, done: int, of: int) -> None:
        """A model that cells deploy is being trained."""

    def on_start(self, cell: CellInfo, timestep: int) -> None:
        """A cell begins, or is continued after `timestep`."""

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        """A timestep of a cell ended."""

    def on_end(self, cell: CellInfo, result: Mapping[str, Any]) -> None:
        """A cell is done; `result` is its line of a table."""

    def on_failure(self, cell: CellInfo, reason: str) -> None:
        """A cell ended without a result, for a reason in one line."""


class Listeners(Listener):
    """Several listeners as one."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self.wants_rows = any(listener.wants_rows for listener in listeners)
        for event in (name for name in vars(Listener) if name.startswith("on_") and name != "on_rows"):
            setattr(self, event, partial(self._tell, event))

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        self._tell("on_rows", cell, timestep, cache(rows))

    def _tell(self, event: str, *what: Any) -> None:
        for listener in self._listeners:
            getattr(listener, event)(*what)
