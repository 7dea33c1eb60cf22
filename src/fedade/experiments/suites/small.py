"""Suites on the default data: a first look in minutes, and the theory."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import PAPER, ROWS, YARDSTICKS, Suite, grid

FEW = {"num_clients": 20}
ENOUGH = {"participation": 0.25}
"""Five clients a round, as in the default run; an average of two would be noise."""

HORIZONS = (25, 50, 100, 200)
"""T, each twice the one before: regret is a power of it."""


def _smoke(seeds: Sequence[int]) -> list[Cell]:
    return grid(
        "smoke",
        ("digits-label", "digits-covariate"),
        (*PAPER, *YARDSTICKS),
        seeds,
        schedules=("lin", "squ"),
        changes={"scenario": {**FEW, "num_timesteps": 16}, "protocol": ENOUGH},
    )


def _theory(seeds: Sequence[int]) -> list[Cell]:
    return [
        cell
        for horizon in HORIZONS
        for cell in grid(
            "theory",
            ("digits-label",),
            (ROWS["fed-ade"], ROWS["fix-lr-mid"], *YARDSTICKS),
            seeds,
            changes={"scenario": {**FEW, "num_timesteps": horizon}, "protocol": {**ENOUGH, "score_fresh": True}},
            varied={"timesteps": horizon},
        )
    ]


SMOKE = Suite("smoke", "every method of the paper on the default data, in minutes on two cores", _smoke, (0, 1))
THEORY = Suite("theory", "dynamic regret against the number of timesteps, on the default data", _theory)
