"""Streams whose labels are laid out for a client's whole run; in runs, by a Dirichlet distribution over time for every
class (RoTTA, CVPR 2023, and much like NOTE)."""

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from fedade.scenarios.streams import Floats, Ints, ShiftStreams

CONCENTRATION = 0.1
"""γ of RoTTA and δ of NOTE."""
MOST_SLOTS = 100


@dataclass(frozen=True)
class LaidOutStreams(ShiftStreams):
    """Labels in an order of their own, images of each class at random. A batch's true class distribution is that of its
    labels."""

    @abstractmethod
    def labels_of(self, client: int) -> Ints:
        """All labels of a client in order, `[n T]`."""

    def prior(self, clients: Ints, timestep: int) -> Floats:
        return np.asarray((self._batch(clients, timestep)[..., None] == np.arange(len(self.rows_by_class))).mean(1))

    def rows(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        labels = self._batch(clients, timestep)
        rows = np.empty_like(labels)
        for place, client in enumerate(clients.tolist()):
            generator = self.seeds.generator(purpose, client=client, timestep=timestep)
            draws = np.asarray(generator.random(labels.shape[1]))
            for label in np.unique(labels[place]):
                there, pool = labels[place] == label, self.rows_by_class[label]
                rows[place, there] = pool[(draws[there] * len(pool)).astype(np.int64)]
        return rows, labels

    def _batch(self, clients: Ints, timestep: int) -> Ints:
        return np.stack([self.labels_of(client)[self.samples_at(timestep)] for client in clients.tolist()])

    def samples_at(self, timestep: int) -> slice:
        """Where a timestep's samples are in a client's order."""
        size = self.settings.samples
        return slice((timestep - 1) * size, timestep * size)


def whole_counts(shares: Floats, total: int) -> Ints:
    """Whole numbers that sum to a total and are as near to these shares of it as can be."""
    exact = shares / shares.sum() * total
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return np.asarray(counts)


@dataclass(frozen=True)
class CorrelatedStreams(LaidOutStreams):
    """Each class's samples are split over slots of time by Dir(0.1); in a slot classes follow one another in blocks.

    How many samples a class has in all is even, or, where labels shift, what the drift would give in the mean. Inputs
    drift as their kind says.
    """

    _labels: dict[int, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)
    """All labels of a client in order, made when it is first asked for."""

    def labels_of(self, client: int) -> Ints:
        if client not in self._labels:
            times, one = range(1, self.num_timesteps + 1), np.array([client])
            mean = np.mean([ShiftStreams.prior(self, one, time)[0] for time in times], axis=0)
            total = self.settings.samples * self.num_timesteps
            draws = self.seeds.generator("correlated", client=client)
            self._labels[client] = correlated_labels(whole_counts(mean, total), draws)
        return self._labels[client]


def correlated_labels(counts: Ints, draws: np.random.Generator, concentration: float = CONCENTRATION) -> Ints:
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
