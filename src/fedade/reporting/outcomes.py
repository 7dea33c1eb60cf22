"""What became of one cell of a suite: its labels, and its result or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedade.reporting.results import Result

Label = str | int | float
COMMON = ("suite", "dataset", "kind", "schedule", "source", "row", "method", "seed")
"""Labels that every cell has, in this order; what a suite varies besides comes after them."""


@dataclass(frozen=True)
class Outcome:
    """One cell of a suite. A cell that failed has a `failure` and no result. One that has neither is planned and not
    run yet."""

    labels: Mapping[str, Label]
    """What the cell is: suite, dataset, kind, schedule, source, row, method, seed, and what the suite varies."""
    result: "Result | None"
    failure: str | None = None
    """The reason, in one line."""
    row_labels: tuple[str, ...] = ()
    """Labels that, with `row` and `method`, say in which row of a table it stands; all others say in which scenario."""
