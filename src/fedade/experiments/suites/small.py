"""Suites on the default data: a first look in minutes, and the theory."""

from fedade.experiments.suites.grid import PAPER, ROWS, YARDSTICKS, Block, Suite

FEW = {"num_clients": 20}
ENOUGH = {"participation": 0.25}
"""Five clients a round, as in the default run; an average of two would be noise."""

HORIZONS = (25, 50, 100, 200)
"""T, each twice the one before: regret is a power of it."""

_SMALL = {"scenario": {**FEW, "num_timesteps": 16}, "protocol": ENOUGH}
SMOKE = Suite(
    "smoke",
    "every method of the paper on the default data, in minutes on two cores",
    [Block(("digits-label", "digits-covariate"), (*PAPER, *YARDSTICKS), ("lin", "squ"), _SMALL)],
    (0, 1),
)
THEORY = Suite(
    "theory",
    "dynamic regret against the number of timesteps, on the default data",
    [
        Block(
            ("digits-label",),
            (ROWS["fed-ade"], ROWS["fix-lr-mid"], *YARDSTICKS),
            changes={"scenario": {**FEW, "num_timesteps": horizon}, "protocol": {**ENOUGH, "score_fresh": True}},
            varied={"timesteps": horizon},
        )
        for horizon in HORIZONS
    ],
)
