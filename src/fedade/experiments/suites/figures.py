"""The figures that need runs: sensitivity to the rate's bounds, to how much clients differ, and to labelled data."""

from fedade.experiments.presets import PRINTED
from fedade.experiments.suites.comparisons import BENCHMARKS
from fedade.experiments.suites.grid import ROWS, YARDSTICKS, Block, Suite, SuiteRow
from fedade.reporting.names import PAPER_BOUNDS

LOWS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
HIGHS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The paper's figure cannot be read off: a decade or more around its bounds, 5e-6 and 1e-4."""

SIZES = (20, 50, 100, 200, 500, 1000, 2000)
"""Labelled images of each client."""
PARTS = (
    ROWS["fed-ade"],
    SuiteRow("Fed-ADE (head)", "fed-ade", {"joint_epochs": 0}),
    SuiteRow("Fed-ADE (body)", "fed-ade", {"personal_epochs": 0, "centred": True}),
)
"""Both steps; φ alone; ψ alone, since a joint step leaves a centred head where it is."""

ALPHAS = (0.05, 0.1, 0.5, 1.0, 10.0, 100.0)
"""From nearly one class per client to equal clients; the paper shows 0.1 and 100."""


def _bounds(low: float, high: float) -> SuiteRow:
    return SuiteRow("Fed-ADE", "fed-ade", {**PRINTED, "rate": {"low": low, "high": high}}, {"low": low, "high": high})


def _fixed(rate: float) -> SuiteRow:
    """The paper's claim is one of comparison: Fed-ADE is less sensitive to its bounds than a fixed rate to itself."""
    bounds = {"low": min(rate, PAPER_BOUNDS["low"]), "mid": rate, "high": max(rate, PAPER_BOUNDS["high"])}
    return SuiteRow("FixLR", "fix-lr-mid", {**PRINTED, "rate": bounds}, {"rate": rate})


_LOW, _HIGH = PAPER_BOUNDS.values()
_RATES = (
    *(_bounds(low, _HIGH) for low in LOWS),
    *(_bounds(_LOW, high) for high in HIGHS if high != _HIGH),
    *(_fixed(rate) for rate in sorted({*LOWS, *HIGHS})),
    YARDSTICKS[0],
)
FIG_LR = Suite("fig-lr", "sensitivity of Fed-ADE to the bounds of its learning rate", [Block(BENCHMARKS, _RATES)])
FIG_DIRICHLET = Suite(
    "fig-dirichlet",
    "how much clients differ, and what that does to methods",
    [
        Block(
            ("cifar10-label",),
            (ROWS["fix-lr-mid"], ROWS["fed-ade"], *YARDSTICKS),
            changes={"scenario": {"alpha": alpha}},
            varied={"alpha": alpha},
        )
        for alpha in ALPHAS
    ],
)
FIG_LABELLED = Suite(
    "fig-labelled",
    "how many labelled images a client needs, for body and head",
    [
        Block(
            ("cifar10-label",),
            (*PARTS, *YARDSTICKS),
            ("lin", "squ"),
            {"scenario": {"reference_size": size}, "method": {"fed-ade": {"batch_size": size}}},
            varied={"labelled": size},
        )
        for size in SIZES
    ],
    (100, 101),
)
FIG_SCHEDULES = Suite("fig-schedules", "the four schedules over time; nothing is trained", ())
