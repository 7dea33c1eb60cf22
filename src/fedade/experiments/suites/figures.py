"""The figures that need runs: sensitivity to the rate's bounds, to how much clients differ, and to labelled data."""

from collections.abc import Sequence

from fedade.experiments.presets import PRINTED
from fedade.experiments.settings import Settings
from fedade.experiments.suites.comparisons import BENCHMARKS
from fedade.experiments.suites.grid import ROWS, YARDSTICKS, Block, Suite, SuiteRow
from fedade.reporting.names import PAPER_BOUNDS

LOWS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
HIGHS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The paper's figure cannot be read off: a decade or more around its bounds, 5e-6 and 1e-4."""

FOUND = {"low": 2.97, "high": 53.5}
"""What `fedade tune cifar10-label --method fed-ade` finds, rounded; rates far from it, to see what an error costs."""
FOUND_LOWS = (0.1, 0.3, 1.0, 2.97, 10.0, 30.0)
FOUND_HIGHS = (5.0, 10.0, 20.0, 53.5, 100.0, 300.0)

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


def _bounds(own: Settings, low: float, high: float) -> SuiteRow:
    rate = {"low": low, "mid": low, "high": high}
    return SuiteRow("Fed-ADE", "fed-ade", {**own, "rate": rate}, {"low": low, "high": high})


def _fixed(own: Settings, rate: float) -> SuiteRow:
    """The paper's claim is one of comparison: Fed-ADE is less sensitive to its bounds than a fixed rate to itself."""
    return SuiteRow("FixLR", "fix-lr-mid", {**own, "rate": {"low": rate, "mid": rate, "high": rate}}, {"rate": rate})


def _over_rates(
    own: Settings, around: dict[str, float], lows: Sequence[float], highs: Sequence[float]
) -> list[SuiteRow]:
    """Fed-ADE with either bound moved and the other kept, and a fixed rate at all of these."""
    return [
        *(_bounds(own, low, around["high"]) for low in lows),
        *(_bounds(own, around["low"], high) for high in highs if high != around["high"]),
        *(_fixed(own, rate) for rate in sorted({*lows, *highs})),
        *YARDSTICKS,
    ]


FIG_LR = Suite(
    "fig-lr",
    "sensitivity of Fed-ADE to the bounds of its learning rate, as printed",
    [Block(BENCHMARKS, _over_rates(PRINTED, PAPER_BOUNDS, LOWS, HIGHS))],
)
FIG_BOUNDS = Suite(
    "fig-bounds",
    "the same around the bounds that are found for CIFAR-10",
    [Block(("cifar10-label",), _over_rates({}, FOUND, FOUND_LOWS, FOUND_HIGHS))],
)
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
