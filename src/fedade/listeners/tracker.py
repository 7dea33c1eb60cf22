"""What all trackers have in common: a record per cell, every timestep once, however often a run is continued."""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedade.core.errors import FedadeError
from fedade.core.events import CellInfo, Listener, RowsOnDemand
from fedade.listeners.stored import by_timestep, means, rows_of

PlainValue = str | int | float | bool


class TrackedCell(Protocol):
    """What a tracker keeps of one cell."""

    last: int
    """The last timestep that is in it."""

    def write(self, timestep: int, measures: Mapping[str, float]) -> None:
        """Add a timestep: means over clients."""

    def end(self, numbers: Mapping[str, float]) -> None:
        """Add the numbers of the result, and close."""

    def fail(self, reason: str) -> None:
        """Add why there is no result, and close."""

    def close(self) -> None:
        """Write what is held back; the record can be opened again."""


class Backend(Protocol):
    """A tracking system."""

    errors: tuple[type[Exception], ...]
    """What it raises when it cannot write."""

    def record(self, cell: CellInfo) -> TrackedCell:
        """A cell's record, which is continued where it exists."""


@dataclass
class Tracker(Listener):
    """Writes what it hears to a tracking system, and first what the disk tells of the timesteps that it has missed. In
    a run, trouble with the tracking system is told once and the run goes on: `fedade export` completes the record."""

    backend: Backend
    strict: bool = False
    """Whether trouble is an error instead."""
    wants_rows: bool = True
    _open: dict[str, TrackedCell] = field(default_factory=dict)
    _silent: bool = False

    def on_start(self, cell: CellInfo, timestep: int) -> None:
        self._try(lambda: self._catch_up(cell, timestep))

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        """Add a timestep; one that a continued run computes again is there already."""
        record = self._open.get(cell.address)
        if record is not None and timestep > record.last and not self._silent:
            measures = means(rows())
            self._try(lambda: record.write(timestep, measures))

    def on_end(self, cell: CellInfo, result: Mapping[str, Any]) -> None:
        plain = {name: value for name, value in result.items() if isinstance(value, int | float) and name != "seed"}
        numbers = {name: float(value) for name, value in plain.items() if not isinstance(value, bool)}
        self._try(lambda: self._taken(cell).end(numbers))

    def on_failure(self, cell: CellInfo, reason: str) -> None:
        self._try(lambda: self._taken(cell).fail(reason))

    def close(self) -> None:
        """Write what is held back of cells that have not ended."""
        while self._open:
            _, record = self._open.popitem()
            self._try(record.close)

    def _catch_up(self, cell: CellInfo, timestep: int) -> None:
        record = self._open[cell.address] = self.backend.record(cell)
        table = rows_of(cell) if timestep > record.last else None
        for step, rows in by_timestep(table) if table is not None else ():
            if record.last < step <= timestep:
                record.write(step, means(rows))

    def _taken(self, cell: CellInfo) -> TrackedCell:
        return self._open.pop(cell.address, None) or self.backend.record(cell)

    def _try(self, act: Callable[[], None]) -> None:
        if self._silent:
            return
        expected: tuple[type[Exception], ...] = (FedadeError, *self.backend.errors)
        try:
            act()
        except expected as error:
            reason = f"{type(self.backend).__name__}: {' '.join(str(error).split())}"
            if self.strict:
                raise FedadeError(reason) from error
            self._silent = True
            remedy = "the run goes on untracked; complete the record later with `fedade export`"
            warnings.warn(f"{reason}; {remedy}", RuntimeWarning, stacklevel=2)


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, PlainValue]:
    """Nested settings under dotted names; lists and nothing as JSON."""
    flat: dict[str, PlainValue] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value if isinstance(value, PlainValue) else json.dumps(value)
    return flat
