"""The paper's tables: those that compare methods, two of them in its appendix, and those that take Fed-ADE apart."""

from collections.abc import Sequence

from fedade.experiments.suites.grid import (
    EXTRA,
    PAPER,
    PRINTED_ROW,
    PRINTED_TEXTS_ROW,
    ROWS,
    TUNED,
    YARDSTICKS,
    Block,
    Suite,
    SuiteRow,
)
from fedade.reporting.names import ESTIMATORS, MEASURES

BENCHMARKS = ("tiny-imagenet-label", "cifar10-label", "cifar10-c", "cifar100-c")
"""Presets of the paper's image benchmarks."""


def _after(source: str, presets: Sequence[str], *rows: SuiteRow) -> Block:
    """Rows after uneven pre-training."""
    return Block(presets, (*rows, *YARDSTICKS), changes={"scenario": {"source": source}})


_SECOND = tuple(ROWS[name] for name in ("fed-ade", "fed-ccfa", "fed-poe", "uda", "unida", "atlas", "fth"))
TABLE1 = Suite(
    "table1",
    "every method on every benchmark; CIFAR-100 under label shift is ours",
    (
        Block((*BENCHMARKS, "cifar100-label"), (*PAPER, PRINTED_ROW, *TUNED, *EXTRA)),
        Block(("lama-label",), (*PAPER, PRINTED_TEXTS_ROW, *TUNED, *EXTRA)),
    ),
)
TABLE2 = Suite(
    "table2",
    "CIFAR-10 after uneven pre-training, Gaussian and exponential",
    [_after(source, ("cifar10-label",), *_SECOND, *TUNED) for source in ("gaussian", "exponential")],
)
TABLE_GAUSSIAN, TABLE_EXPONENTIAL = (
    Suite(
        f"table-{source}",
        f"appendix: every image benchmark after {named} pre-training",
        [_after(source, BENCHMARKS, *PAPER)],
    )
    for source, named in (("gaussian", "Gaussian"), ("exponential", "exponential"))
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


TABLE3 = Suite(
    "table3",
    "Fed-ADE with other measures of shift, on CIFAR-10",
    [
        Block(
            ("cifar10-label",),
            (
                *(_measure(name) for name in MEASURES),
                # The paper does not say whether its alternatives replace the cosine of the features too.
                *(_measure(name, "cosine") for name in MEASURES if name != "cosine"),
                *(_measure(name) for name in OTHER_MEASURES),
                ROWS["fix-lr-mid"],
                *YARDSTICKS,
            ),
        )
    ],
)
_WITHOUT = (
    SuiteRow(ESTIMATORS["Fed-ADE"], "fed-ade"),
    SuiteRow(ESTIMATORS["w/o S_unc"], "fed-ade", {"use_unc": False}),
    SuiteRow(ESTIMATORS["w/o S_rep"], "fed-ade", {"use_rep": False}),
    SuiteRow(ESTIMATORS["FixLR(Mid)"], "fix-lr-mid"),
    *YARDSTICKS,
)
TABLE4 = Suite(
    "table4",
    "Fed-ADE without one of its signals, on CIFAR-10 and CIFAR-10-C",
    # The numbers of the paper's fourth table are those of the first one's linear schedule.
    [Block(("cifar10-label", "cifar10-c"), _WITHOUT, ("lin",))],
)
