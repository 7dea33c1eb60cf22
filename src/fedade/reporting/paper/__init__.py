"""The numbers that the paper prints, as data; one file per table.

`table1` is sim:performance_compare, `table2` tab:pretrain_dist_transposed_multirow, `table3` tab:ablation_similarity,
`table4` tab:ablation_estimators; `table-gaussian` and `table-exponential` are sim:performance_compare_g and _e of the
appendix. Table 4 does not name its schedule; its first and last rows are those of table 1 under Lin.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

TABLES = ("table1", "table2", "table3", "table4", "table-gaussian", "table-exponential")
"""The paper's tables of accuracies, by the name of the suite that redoes them."""


class Published(NamedTuple):
    """A number of the paper and its ±, in percent or in seconds."""

    mean: float
    deviation: float


class PaperPlace(NamedTuple):
    """Where a number stands: in labels, except for the row, which has the paper's name."""

    dataset: str
    kind: str
    source: str
    schedule: str
    row: str


@cache
def accuracies(table: str) -> Mapping[PaperPlace, Published]:
    """All accuracies of a table; none for a suite that is no table of the paper."""
    if table not in TABLES:
        return {}
    return {PaperPlace(*(line[field] for field in PaperPlace._fields)): _published(line) for line in _lines(table)}


@cache
def wall_times() -> Mapping[str, Published]:
    """Average wall time in seconds by row: the last line of table 1, on the authors' machine (two RTX 3090)."""
    return {line["row"]: _published(line) for line in _lines("table1-wall-time")}


def _published(line: Mapping[str, str]) -> Published:
    return Published(float(line["mean"]), float(line["deviation"]))


def _lines(name: str) -> list[dict[str, str]]:
    with resources.files(__name__).joinpath(f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
