"""Corruptions at full severity: one after the other, in the order of the benchmark (CoTTA, CVPR 2022), two in
turn, or one of its own for every sample (mixed domains, as in Marsden et al., WACV 2024)."""

import numpy as np

from fedade.data.corruptions.registry import MAX_SEVERITY
from fedade.scenarios.streams import Ints, ShiftStreams

GROUPS = 10
"""Client c begins with corruption c mod 10 and goes round: groups of clients meet the same in different order."""
BATCHES_EACH = 5
"""How long each of two corruptions stays before the other comes back."""


class ContinualStreams(ShiftStreams):
    """Every client meets all corruptions, each for an equal part of the time; classes drift as their kind says."""

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        number = len(self.corruptions)
        visit = (timestep - 1) * number // self.num_timesteps
        names = (clients % GROUPS + visit) % number
        severity = MAX_SEVERITY * self.settings.shifts_inputs
        shape = (len(clients), self.settings.samples)
        return np.broadcast_to(names[:, None], shape), np.full(shape, severity, dtype=np.int64)


class ReturningStreams(ContinualStreams):
    """Two corruptions in turn for every client, each for a few batches: A-B-A-B."""

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        _, severities = super().conditions(clients, timestep, purpose)
        names = (clients + (timestep - 1) // BATCHES_EACH % 2) % len(self.corruptions)
        return np.broadcast_to(names[:, None], severities.shape), severities


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
