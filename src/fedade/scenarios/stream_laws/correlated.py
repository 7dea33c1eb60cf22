"""Labels come in runs: a Dirichlet distribution over time for every class (RoTTA, CVPR 2023, and much like NOTE)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedade.scenarios.stream_laws.laid_out import LaidOutStreams, whole_counts
from fedade.scenarios.streams import ShiftStreams

CONCENTRATION = 0.1
"""γ of RoTTA and δ of NOTE."""
MOST_SLOTS = 100


@dataclass(frozen=True)
class CorrelatedStreams(LaidOutStreams):
    """Each class's samples are split over slots of time by Dir(0.1); in a slot classes follow one another in blocks.

    How many samples a class has in all is even, or, where labels shift, what the drift would give in the mean. Inputs
    drift as their kind says.
    """

    _labels: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """All labels of a client in order, made when it is first asked for."""

    def labels_of(self, client: int) -> NDArray[np.int64]:
        if client not in self._labels:
            times, one = range(1, self.num_timesteps + 1), np.array([client])
            mean = np.mean([ShiftStreams.prior(self, one, time)[0] for time in times], axis=0)
            total = self.settings.samples * self.num_timesteps
            self._labels[client] = correlated_labels(
                whole_counts(mean, total), self.seeds.generator("correlated", client=client)
            )
        return self._labels[client]


def correlated_labels(
    counts: NDArray[np.int64], draws: np.random.Generator, concentration: float = CONCENTRATION
) -> NDArray[np.int64]:
    """RoTTA's order: π_k ~ Dir(γ) over the slots cuts each class's samples; slots in turn, their classes shuffled."""
    slots = min(len(counts), MOST_SLOTS)
    shares = draws.dirichlet(np.full(slots, concentration), len(counts))
    ends = np.floor(np.cumsum(shares, 1) * counts[:, None]).astype(np.int64)
    ends[:, -1] = counts
    pieces = np.diff(ends, axis=1, prepend=0)
    return np.concatenate([
        np.repeat(order, pieces[order, slot])
        for slot in range(slots)
        for order in [draws.permutation(len(counts))]
    ])  # fmt: skip
