"""Clients with a time of their own: each drifts by its own schedule, from its own start and at its own speed, as the
text of the paper has it; or joins late, in a fleet that grows while the world drifts on."""

import numpy as np

from fedade.core.seeds import Seeds
from fedade.maths.schedules import SCHEDULES
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import Floats, Ints, ShiftStreams, client_schedules

SLOWEST, FASTEST = 0.5, 2.0
LATEST_START = 0.25
"""Share of the run."""
LATE_SHARE = 0.5
"""Share of the clients that are not there from the start."""
LAST_JOINS = 0.75
"""Share of the run after which nobody joins."""


class OwnPaceStreams(ShiftStreams):
    """ω_c(t) = ω_s(speed · (t - start)) with a schedule s, speed and start drawn for each client."""

    @staticmethod
    def schedules(settings: ScenarioSettings, seeds: Seeds) -> Floats:
        names, times = tuple(SCHEDULES), np.arange(settings.num_timesteps + 1)
        paths = {name: client_schedules(settings.model_copy(update={"schedule": name}), seeds) for name in names}
        rows = []
        for client in range(settings.num_clients):
            draws = seeds.generator("pace", client=client)
            name = names[draws.integers(len(names))]
            speed = SLOWEST * (FASTEST / SLOWEST) ** draws.random()
            start = draws.random() * LATEST_START * settings.num_timesteps
            rows.append(paths[name][client, np.rint(speed * (times - start)).clip(0, times[-1]).astype(np.int64)])
        return np.stack(rows)


class LateStreams(ShiftStreams):
    """As drift, but half of the clients, drawn by the seed, join one after the other at even distances. A client meets
    its stream where the drift stands by then, with a state as deployed."""

    @staticmethod
    def joining(settings: ScenarioSettings, seeds: Seeds) -> Ints:
        late = int(LATE_SHARE * settings.num_clients)
        waits = np.ceil(LAST_JOINS * settings.num_timesteps * np.arange(1, late + 1) / max(1, late))
        first = np.ones(settings.num_clients, dtype=np.int64)
        first[seeds.generator("late").permutation(settings.num_clients)[:late]] += waits.astype(np.int64)
        return first.clip(max=settings.num_timesteps)
