"""The tables that take Fed-ADE apart: how shifts are measured, and which signals count."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import Suite, SuiteRow, grid
from fedade.experiments.suites.rows import ROWS, YARDSTICKS
from fedade.reporting.names import ESTIMATORS, MEASURES

OTHER_MEASURES = ("jeffreys", "js", "hellinger", "tv", "mmd", "energy")
"""Rows that the paper does not have. `w1-index` is left out: it depends on the order of the classes, which means
nothing on these data."""


def _measure(measure: str, feature_measure: str = "paired") -> SuiteRow:
    """Fed-ADE with another measure: on predictions and features, or on predictions alone."""
    name = MEASURES.get(measure, measure)
    return SuiteRow(
        name if feature_measure == "paired" else f"{name} (predictions only)",
        "fed-ade",
        {"measure": measure, "feature_measure": feature_measure},
        {"measure": measure, "feature_measure": feature_measure},
    )


def _table3(seeds: Sequence[int]) -> list[Cell]:
    rows = [
        *(_measure(name) for name in MEASURES),
        # The paper does not say whether its alternatives replace the cosine of the features too.
        *(_measure(name, "cosine") for name in MEASURES if name != "cosine"),
        *(_measure(name) for name in OTHER_MEASURES),
        ROWS["fix-lr-mid"],
        *YARDSTICKS,
    ]
    return grid("table3", ("cifar10-label",), rows, seeds)


def _table4(seeds: Sequence[int]) -> list[Cell]:
    rows = (
        SuiteRow(ESTIMATORS["Fed-ADE"], "fed-ade"),
        SuiteRow(ESTIMATORS["w/o S_unc"], "fed-ade", {"use_unc": False}),
        SuiteRow(ESTIMATORS["w/o S_rep"], "fed-ade", {"use_rep": False}),
        SuiteRow(ESTIMATORS["FixLR(Mid)"], "fix-lr-mid"),
        *YARDSTICKS,
    )
    # The numbers of the paper's fourth table are those of the first one's linear schedule.
    return grid("table4", ("cifar10-label", "cifar10-c"), rows, seeds, schedules=("lin",))


TABLE3 = Suite("table3", "Fed-ADE with other measures of shift, on CIFAR-10", _table3)
TABLE4 = Suite("table4", "Fed-ADE without one of its signals, on CIFAR-10 and CIFAR-10-C", _table4)
