"""Streams whose labels are laid out for a client's whole run before its first batch."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedade.scenarios.streams import ShiftStreams


@dataclass(frozen=True)
class LaidOutStreams(ShiftStreams):
    """Labels in an order of their own, images of each class at random.

    A batch's true class distribution is that of its labels.
    """

    @abstractmethod
    def labels_of(self, client: int) -> NDArray[np.int64]:
        """All labels of a client in order, `[n T]`."""

    def prior(self, clients: NDArray[np.int64], timestep: int) -> NDArray[np.float64]:
        classes = np.arange(len(self.rows_by_class))
        return np.asarray((self._batch(clients, timestep)[..., None] == classes).mean(1))

    def rows(
        self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        labels = self._batch(clients, timestep)
        rows = np.empty_like(labels)
        for place, client in enumerate(clients.tolist()):
            generator = self.seeds.generator(purpose, client=client, timestep=timestep)
            draws = np.asarray(generator.random(labels.shape[1]))
            for label in np.unique(labels[place]):
                there, pool = labels[place] == label, self.rows_by_class[label]
                rows[place, there] = pool[(draws[there] * len(pool)).astype(np.int64)]
        return rows, labels

    def _batch(self, clients: NDArray[np.int64], timestep: int) -> NDArray[np.int64]:
        return np.stack([self.labels_of(client)[self.samples_at(timestep)] for client in clients.tolist()])

    def samples_at(self, timestep: int) -> slice:
        """Where a timestep's samples are in a client's order."""
        size = self.settings.samples
        return slice((timestep - 1) * size, timestep * size)


def whole_counts(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers that sum to a total and are as near to these shares of it as can be."""
    exact = shares / shares.sum() * total
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return np.asarray(counts)
