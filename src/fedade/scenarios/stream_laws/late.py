"""Clients join during the run: a fleet that grows while the world drifts on."""

import numpy as np
from numpy.typing import NDArray

from fedade.core.seeds import Seeds
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import ShiftStreams

LATE_SHARE = 0.5
"""Share of the clients that are not there from the start."""
LAST_JOINS = 0.75
"""Share of the run after which nobody joins."""


class LateStreams(ShiftStreams):
    """As drift, but half of the clients, drawn by the seed, join one after the other at even distances.

    A client meets its stream where the drift stands by then, with a state as deployed.
    """

    @staticmethod
    def joining(settings: ScenarioSettings, seeds: Seeds) -> NDArray[np.int64]:
        late = int(LATE_SHARE * settings.num_clients)
        waits = np.ceil(LAST_JOINS * settings.num_timesteps * np.arange(1, late + 1) / max(1, late))
        first = np.ones(settings.num_clients, dtype=np.int64)
        first[seeds.generator("late").permutation(settings.num_clients)[:late]] += waits.astype(np.int64)
        return first.clip(max=settings.num_timesteps)
