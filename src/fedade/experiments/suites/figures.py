"""The figures that need runs: sensitivity to the rate's bounds, and to how much clients differ."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.comparisons import BENCHMARKS
from fedade.experiments.suites.grid import Suite, SuiteRow, grid
from fedade.experiments.suites.rows import ROWS, YARDSTICKS
from fedade.parts.rates import RateBounds

LOWS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
HIGHS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
"""The paper's figure cannot be read off: a decade or more around its bounds, 5e-6 and 1e-4."""

ALPHAS = (0.05, 0.1, 0.5, 1.0, 10.0, 100.0)
"""From nearly one class per client to equal clients; the paper shows 0.1 and 100."""


def _bounds(low: float, high: float) -> SuiteRow:
    return SuiteRow("Fed-ADE", "fed-ade", {"rate": {"low": low, "high": high}}, {"low": low, "high": high})


def _fixed(rate: float) -> SuiteRow:
    """The paper's claim is one of comparison: Fed-ADE is less sensitive to its bounds than a fixed rate to itself."""
    bounds = {"low": min(rate, RateBounds().low), "mid": rate, "high": max(rate, RateBounds().high)}
    return SuiteRow("FixLR", "fix-lr-mid", {"rate": bounds}, {"rate": rate})


def _fig_lr(seeds: Sequence[int]) -> list[Cell]:
    paper = RateBounds()
    rows = [
        *(_bounds(low, paper.high) for low in LOWS),
        *(_bounds(paper.low, high) for high in HIGHS if high != paper.high),
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


def _no_cells(seeds: Sequence[int]) -> list[Cell]:  # noqa: ARG001
    return []


FIG_LR = Suite("fig-lr", "sensitivity of Fed-ADE to the bounds of its learning rate", _fig_lr)
FIG_DIRICHLET = Suite("fig-dirichlet", "how much clients differ, and what that does to methods", _fig_dirichlet)
FIG_SCHEDULES = Suite("fig-schedules", "the four schedules over time; nothing is trained", _no_cells)
