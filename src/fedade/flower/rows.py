"""From what clients tell to the trace that the simulator would write."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.core.method import Plan
from fedade.core.trace import Rows
from fedade.engine.scoring import CONFIDENCE_BINS, Quality
from fedade.flower.members import Member
from fedade.flower.settings import SHAREABLE, FlowerSettings
from fedade.flower.wire import ReportedRow

PlainRow = dict[str, Any]
_COUNTS = ("n", "participated", "bytes_sent", "bytes_received")
_NEVER_MISSING = ("accuracy_pre", "accuracy_post", "severity")
"""Reports read these columns; where nobody shares them they hold NaN."""


_SHARE, _POSITIVE, _ANY = (0.0, 1.0), (0.0, math.inf), (-math.inf, math.inf)
_SHARES = (
    "accuracy_pre", "accuracy_post", "accuracy_fresh", "true_prior", "confidence",
    "estimated_accuracy", "estimated_low", "estimated_high", "alarm",
)  # fmt: skip
_RANGES = {
    **dict.fromkeys(Quality._fields, _POSITIVE),
    **dict.fromkeys(_SHARES, _SHARE),
    **dict.fromkeys(("learning_rate", "state_bytes", "passes", "waiting"), _POSITIVE),
}
"""What a column can hold; all others any finite number."""
LARGEST = float(np.finfo(np.float32).max)
"""Methods compute in single precision. Sums and axes of larger numbers overflow, and a run ended without its report."""


def check_row(reported: ReportedRow, expected: int, widths: Mapping[str, int], settings: FlowerSettings) -> None:
    """Refuse a row that is not the client's to tell: of another timestep, or with other columns, types or values.
    `widths` tells of every column how many numbers it holds, 0 for a single one."""
    if not expected:
        raise FedadeError("it was not asked for one")
    if reported.timestep != expected:
        raise FedadeError(f"it is of timestep {reported.timestep}, not {expected}")
    if reported.samples > settings.max_samples:
        raise FedadeError(
            f"it counts {reported.samples} samples, more than {settings.max_samples} (flower.max_samples)"
        )
    for name, value in reported.measures.items():
        if name not in widths or not settings.shares(name):
            raise FedadeError(f"there is no column {name} to tell")
        _check_measure(name, value, widths[name])


def _check_measure(name: str, value: object, width: int) -> None:
    if isinstance(value, list) != bool(width):
        found, expected = ("a number", "a list") if width else ("a list", "a number")
        raise FedadeError(f"{name} is {found}, expected {expected}")
    numbers = value if isinstance(value, list) else [value]
    if width and len(numbers) != width:
        raise FedadeError(f"{name} has {len(numbers)} numbers, expected {width}")
    low, high = _RANGES.get(name, _ANY)
    for number in numbers:
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise FedadeError(f"{name} is {str(number)[:20]!r}, expected a number")
        if math.isfinite(number) and abs(number) > LARGEST:
            raise FedadeError(f"{name} is {number:g}, expected a number of single precision")
        if not (math.isfinite(number) and low <= number <= high):
            wanted = "a finite number" if (low, high) == _ANY else f"{low:g} to {high:g}"
            raise FedadeError(f"{name} is {number:g}, expected {wanted}")


def widths_of(plan: Plan, classes: int) -> dict[str, int]:
    """The columns that clients of a method may tell, and how many numbers each holds; 0: a single one."""
    planned = {name: value.numel() if value.ndim else 0 for name, value in plan.items()}
    by_class = dict.fromkeys(("prior", "true_prior", "class_samples", "class_hits"), classes)
    by_bin = dict.fromkeys(("confidence_samples", "confidence_hits", "confidence_sums"), CONFIDENCE_BINS)
    return {**dict.fromkeys(SHAREABLE, 0), **by_class, **by_bin, **planned}


def plain_row(member: Member, reported: ReportedRow) -> PlainRow:
    """A row of the trace: what the client reported, beside what the server counted."""
    counted = {"n": reported.samples, **{name: getattr(member, name) for name in _COUNTS if name != "n"}}
    # One kind of number in a column: Arrow refuses large whole ones among others.
    measures = {
        name: [float(each) for each in value] if isinstance(value, list) else float(value)
        for name, value in reported.measures.items()
    }
    return {"client": member.number, "timestep": reported.timestep, **counted, **measures}


def by_timestep(rows: Iterable[PlainRow]) -> dict[int, list[PlainRow]]:
    groups: dict[int, list[PlainRow]] = {}
    for row in rows:
        groups.setdefault(int(row["timestep"]), []).append(row)
    return dict(sorted(groups.items()))


def columns(rows: Sequence[PlainRow]) -> Rows:
    """Single numbers of some rows as columns, for listeners; what a client does not share is NaN."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, int | float))
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}


def whole_trace(
    rows: Iterable[PlainRow], labels: Mapping[str, str | int], first_timesteps: Sequence[int], timesteps: int
) -> pa.Table:
    """One row for every client and timestep since it joined, in order; one that was away has a row without measures."""
    reported = {(row["timestep"], row["client"]): row for row in rows}
    absent = dict.fromkeys(_COUNTS, 0)
    classes = max((len(row["true_prior"]) for row in reported.values() if "true_prior" in row), default=1)
    missing: PlainRow = {**dict.fromkeys(_NEVER_MISSING, math.nan), "true_prior": [math.nan] * classes}
    ordered = [
        {**labels, "client": client, "timestep": timestep, **absent, **missing, **reported.get((timestep, client), {})}
        for timestep in range(1, timesteps + 1)
        for client, first in enumerate(first_timesteps)
        if first <= timestep
    ]
    return pa.Table.from_pylist(ordered, schema=_schema(ordered))


def rows_of(tables: Sequence[pa.Table]) -> list[PlainRow]:
    """The rows of stored tables, without what a row does not have."""
    rows = (row for table in tables for row in table.to_pylist())
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


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
