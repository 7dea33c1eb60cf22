"""Corruptions at full severity: one after the other, in the order of the benchmark (CoTTA, CVPR 2022), or one of
its own for every sample (mixed domains, as in Marsden et al., WACV 2024)."""

import numpy as np

from fedade.data.corruptions.registry import MAX_SEVERITY
from fedade.scenarios.streams import Ints, ShiftStreams

GROUPS = 10
"""Client c begins with corruption c mod 10 and goes round: groups of clients meet the same in different order."""


class ContinualStreams(ShiftStreams):
    """Every client meets all corruptions, each for an equal part of the time; classes drift as their kind says."""

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        number = len(self.corruptions)
        visit = (timestep - 1) * number // self.num_timesteps
        names = (clients % GROUPS + visit) % number
        severity = MAX_SEVERITY * self.settings.shifts_inputs
        shape = (len(clients), self.settings.samples)
        return np.broadcast_to(names[:, None], shape), np.full(shape, severity, dtype=np.int64)


class MixedStreams(ShiftStreams):
    """All corruptions alike, drawn independently for each sample; classes drift as their kind says."""

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        names = np.stack([
            self.seeds.generator(f"{purpose} corruptions", client=client, timestep=timestep).integers(
                len(self.corruptions), size=self.settings.samples
            )
            for client in clients.tolist()
        ])  # fmt: skip
        return names, np.full(names.shape, MAX_SEVERITY * self.settings.shifts_inputs, dtype=np.int64)
