"""From what clients tell to the trace that the simulator would write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedade.core import trace
from fedade.core.trace import Rows
from fedade.flower.members import Member
from fedade.flower.wire import ReportedRow

PlainRow = dict[str, Any]

_COUNTS = ("n", "participated", "bytes_sent", "bytes_received")
_NEVER_MISSING = ("accuracy_pre", "accuracy_post", "severity")
"""Reports read these columns; where nobody shares them they hold NaN."""


def plain_row(member: Member, reported: ReportedRow) -> PlainRow:
    """A row of the trace: what the client reported, beside what the server counted."""
    return {
        "client": member.number,
        "timestep": reported.timestep,
        "n": reported.samples,
        "participated": member.participated,
        "bytes_sent": member.bytes_sent,
        "bytes_received": member.bytes_received,
        **reported.measures,
    }


def by_timestep(rows: Iterable[PlainRow]) -> dict[int, list[PlainRow]]:
    """Rows in groups, earliest first."""
    groups: dict[int, list[PlainRow]] = {}
    for row in rows:
        groups.setdefault(int(row["timestep"]), []).append(row)
    return dict(sorted(groups.items()))


def columns(rows: Sequence[PlainRow]) -> Rows:
    """Single numbers of some rows as columns, for listeners; what a client does not share is NaN."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, int | float))
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}


def whole_trace(rows: Iterable[PlainRow], labels: Mapping[str, str | int], clients: int, timesteps: int) -> pa.Table:
    """One row for every client and timestep, in order; a client that was away has a row without measures."""
    reported = {(row["timestep"], row["client"]): row for row in rows}
    absent = dict.fromkeys(_COUNTS, 0)
    missing: PlainRow = {**dict.fromkeys(_NEVER_MISSING, float("nan")), "true_prior": [float("nan")]}
    ordered = [
        {**labels, "client": client, "timestep": timestep, **absent, **missing, **reported.get((timestep, client), {})}
        for timestep in range(1, timesteps + 1)
        for client in range(clients)
    ]
    return pa.Table.from_pylist(ordered, schema=_schema(ordered))


def rows_of(tables: Sequence[pa.Table]) -> list[PlainRow]:
    """The rows of stored tables, without what a row does not have."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for table in tables
        for row in table.to_pylist()
    ]


def stored_rows(rows: Sequence[PlainRow]) -> pa.Table:
    """Rows as a table, to be kept until the run ends."""
    return pa.Table.from_pylist(rows, schema=_schema(rows)) if rows else trace.to_table({})


def _schema(rows: Sequence[PlainRow]) -> pa.Schema:
    """All columns of all rows, in the order in which they first appear."""
    values = {name: value for row in reversed(rows) for name, value in row.items()}
    order = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(name, _type(values[name])) for name in order])


def _type(value: Any) -> pa.DataType:
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, int):
        return pa.int64()
    return pa.list_(pa.float64()) if isinstance(value, list) else pa.float64()
