"""The trace: one tidy row per client and timestep, from which every table and figure is a query."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedade.core import storage

Rows = Mapping[str, NDArray[Any]]
"""Columns of equal length; a column may have a second axis, such as the classes of a prior."""

IDENTIFIERS = ("method", "seed", "client", "timestep")
"""The columns that say which row it is; all others are measures."""


def to_table(rows: Rows) -> pa.Table:
    """Columns as an Arrow table; a second axis becomes a list."""
    return pa.table({name: _column(values) for name, values in rows.items()})


def _column(values: NDArray[Any]) -> pa.Array:
    if values.ndim == 2:
        # Not of fixed size: parquet readers before pyarrow 17 cannot read nulls among lists of fixed size.
        offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
    return pa.array(values)


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows; a measure that a method does not have is null."""
    return pa.concat_tables(tables, promote_options="default")


def write(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    storage.write_bytes(path, sink.getvalue().to_pybytes())


def read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, MemoryError, pa.ArrowException) as error:
        said = f"{path} is not a readable trace; delete it and resume the run"
        raise storage.unreadable(path, error, said) from error


def column(table: pa.Table, name: str) -> NDArray[Any]:
    """A column as an array, lists as a second axis, nulls as NaN."""
    values = table[name].combine_chunks()
    if pa.types.is_list(values.type):
        present = np.asarray(values.is_valid())
        flat = np.asarray(values.flatten(), dtype=float)
        width = len(flat) // present.sum() if present.any() else 1
        rows = np.full((len(values), width), np.nan)
        rows[present] = flat.reshape(-1, width)
        return rows
    return np.asarray(values.to_numpy(zero_copy_only=False))


def mean(values: NDArray[Any]) -> float | None:
    """Over the rows that have it: a client of a real network that was away has none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def where(table: pa.Table, **equal: object) -> pa.Table:
    keep = np.ones(len(table), dtype=bool)
    for name, value in equal.items():
        keep &= column(table, name) == value
    return table.filter(pa.array(keep))
