"""The paper's tables: those that compare methods, two of them in its appendix, and those that take Fed-ADE apart."""

from collections.abc import Sequence
from functools import partial

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import (
    EXTRA,
    PAPER,
    PRINTED_ROW,
    PRINTED_TEXTS_ROW,
    ROWS,
    TUNED,
    YARDSTICKS,
    Suite,
    SuiteRow,
    grid,
)
from fedade.reporting.names import ESTIMATORS, MEASURES

BENCHMARKS = ("tiny-imagenet-label", "cifar10-label", "cifar10-c", "cifar100-c")
"""Presets of the paper's image benchmarks."""


def _table1(seeds: Sequence[int]) -> list[Cell]:
    images = grid("table1", (*BENCHMARKS, "cifar100-label"), (*PAPER, PRINTED_ROW, *TUNED, *EXTRA), seeds)
    return [*images, *grid("table1", ("lama-label",), (*PAPER, PRINTED_TEXTS_ROW, *TUNED, *EXTRA), seeds)]


def _table2(seeds: Sequence[int]) -> list[Cell]:
    names = ("fed-ade", "fed-ccfa", "fed-poe", "uda", "unida", "atlas", "fth")
    rows = (*(ROWS[name] for name in names), *TUNED, *YARDSTICKS)
    return [
        cell
        for source in ("gaussian", "exponential")
        for cell in grid("table2", ("cifar10-label",), rows, seeds, changes=_source(source))
    ]


def _appendix(source: str, seeds: Sequence[int]) -> list[Cell]:
    return grid(f"table-{source}", BENCHMARKS, (*PAPER, *YARDSTICKS), seeds, changes=_source(source))


def _source(distribution: str) -> dict[str, dict[str, str]]:
    return {"scenario": {"source": distribution}}


TABLE1 = Suite("table1", "every method on every benchmark; CIFAR-100 under label shift is ours", _table1)
TABLE2 = Suite("table2", "CIFAR-10 after uneven pre-training, Gaussian and exponential", _table2)
TABLE_GAUSSIAN = Suite(
    "table-gaussian", "appendix: every image benchmark after Gaussian pre-training", partial(_appendix, "gaussian")
)
TABLE_EXPONENTIAL = Suite(
    "table-exponential",
    "appendix: every image benchmark after exponential pre-training",
    partial(_appendix, "exponential"),
)


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
