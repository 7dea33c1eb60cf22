"""The figures that need runs: sensitivity to the rate's bounds, to how much clients differ, and to labelled data."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.presets import PRINTED
from fedade.experiments.suites.comparisons import BENCHMARKS
from fedade.experiments.suites.grid import ROWS, YARDSTICKS, Suite, SuiteRow, grid
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


def _fig_lr(seeds: Sequence[int]) -> list[Cell]:
    paper_low, paper_high = PAPER_BOUNDS.values()
    rows = [
        *(_bounds(low, paper_high) for low in LOWS),
        *(_bounds(paper_low, high) for high in HIGHS if high != paper_high),
        *(_fixed(rate) for rate in sorted({*LOWS, *HIGHS})),
        YARDSTICKS[0],
    ]
    return grid("fig-lr", BENCHMARKS, rows, seeds)


def _fig_dirichlet(seeds: Sequence[int]) -> list[Cell]:
    rows = (ROWS["fix-lr-mid"], ROWS["fed-ade"], *YARDSTICKS)
    return [
        cell
        for alpha in ALPHAS
        for cell in grid(
            "fig-dirichlet",
            ("cifar10-label",),
            rows,
            seeds,
            changes={"scenario": {"alpha": alpha}},
            varied={"alpha": alpha},
        )
    ]


def _fig_labelled(seeds: Sequence[int]) -> list[Cell]:
    return [
        cell
        for size in SIZES
        for cell in grid(
            "fig-labelled",
            ("cifar10-label",),
            (*PARTS, *YARDSTICKS),
            seeds,
            ("lin", "squ"),
            changes={"scenario": {"reference_size": size}, "method": {"fed-ade": {"batch_size": size}}},
            varied={"labelled": size},
        )
    ]


FIG_LR = Suite("fig-lr", "sensitivity of Fed-ADE to the bounds of its learning rate", _fig_lr)
FIG_DIRICHLET = Suite("fig-dirichlet", "how much clients differ, and what that does to methods", _fig_dirichlet)
FIG_LABELLED = Suite(
    "fig-labelled", "how many labelled images a client needs, for body and head", _fig_labelled, (100, 101)
)
FIG_SCHEDULES = Suite("fig-schedules", "the four schedules over time; nothing is trained", lambda _: [])
