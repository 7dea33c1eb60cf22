"""Cells as their folder tells them, finished or not, while another process may be writing."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.events import CellInfo
from fedade.core.trace import Rows

ATTEMPTS = 5
"""Files are moved and merged meanwhile; so often is looked again before what is wrong is told."""


@dataclass(frozen=True)
class StoredCell:
    """A cell on disk."""

    info: CellInfo
    result: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def reached(self) -> int:
        """The last timestep whose rows are there."""
        return self.info.num_timesteps if self.result else max((last for _, last, _ in _segments(self.info)), default=0)

    @property
    def state(self) -> str:
        if self.result is not None:
            return "done"
        return "failed" if self.reason is not None else "running" if self.reached else "waiting"


def stored_cells(folder: Path) -> list[StoredCell]:
    """Every cell that a folder tells of, by title; one that is just being moved or removed is left out."""
    cells = []
    for path in (folder / "cells").glob("*/cell.json"):
        if ".corrupt-" in path.parent.name:
            continue
        try:
            cells.append(_stored(path.parent))
        except (FedadeError, KeyError, TypeError):
            continue
    return sorted(cells, key=lambda cell: cell.info.title)


def _stored(path: Path) -> StoredCell:
    stored = storage.read_json(path / "cell.json")
    steps = stored["experiment"]["scenario"]["num_timesteps"]
    info = CellInfo(path.name, stored["title"], stored["labels"], path, steps, stored["experiment"])
    if (path / "result.json").exists():
        return StoredCell(info, storage.read_json(path / "result.json")["result"])
    if (path / "failure.json").exists():
        return StoredCell(info, reason=str(storage.read_json(path / "failure.json")["reason"]))
    return StoredCell(info)


def rows_of(cell: CellInfo) -> pa.Table | None:
    """All rows that are on disk, in order and each timestep once; nothing where there are none yet."""
    for attempt in range(ATTEMPTS):
        try:
            return _read(cell)
        except FedadeError:
            if attempt == ATTEMPTS - 1:
                raise
    return None


def _read(cell: CellInfo) -> pa.Table | None:
    if (cell.folder / "trace.parquet").exists():
        return trace.read(cell.folder / "trace.parquet")
    parts, reached = [], 0
    for first, last, path in sorted(_segments(cell)):
        if first <= reached + 1 and last > reached:  # what a killed run left behind may overlap, with the same rows
            parts.append(trace.read(path).filter(pc.field("timestep") > reached))
            reached = last
    return trace.concatenate(parts) if parts else None


def _segments(cell: CellInfo) -> list[tuple[int, int, Path]]:
    """First and last timestep of every file of rows."""
    named = [(re.fullmatch(r"rows-(\d+)-(\d+)", path.stem), path) for path in cell.folder.glob("rows-*.parquet")]
    return [(int(match[1]), int(match[2]), path) for match, path in named if match]


def by_timestep(table: pa.Table) -> Iterator[tuple[int, Rows]]:
    columns = {name: trace.column(table, name) for name in table.column_names}
    timesteps = columns["timestep"]
    for timestep in np.unique(timesteps):
        yield int(timestep), {name: values[timesteps == timestep] for name, values in columns.items()}


def means(rows: Rows) -> dict[str, float]:
    """The mean over clients of every measure that is one number per client; one that nobody has is left out."""
    means = {}
    for name, values in rows.items():
        if name not in trace.IDENTIFIERS and values.ndim == 1 and values.dtype.kind in "fiub":
            known = values.astype(float)[np.isfinite(values.astype(float))]
            if len(known):
                means[name] = float(known.mean())
    return means
