"""No image comes twice to a client: a stream that cannot be learned by heart."""

from dataclasses import dataclass, field

import numpy as np

from fedade.core.errors import FedadeError
from fedade.scenarios.streams import Floats, Ints, ShiftStreams


@dataclass(frozen=True)
class OnceStreams(ShiftStreams):
    """The drift's classes, each image at most once; what a class cannot give any more, the others give.

    Where labels shift, a class may run out of images before its share ends: a batch's true class distribution is then
    the drift's over the classes that are left.
    """

    _streams: dict[tuple[str, int], tuple[Ints, Ints]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Rows and labels of a client, `[T, n]`, by purpose."""

    def __post_init__(self) -> None:
        needed, there = self.settings.samples * self.num_timesteps, sum(map(len, self.rows_by_class))
        if needed > there:
            raise FedadeError(
                f"scenario.stream: once needs {needed} images for a client's {self.num_timesteps} timesteps, and there "
                f"are {there}; lower scenario.samples or scenario.num_timesteps, or choose drift"
            )

    def prior(self, clients: Ints, timestep: int) -> Floats:
        left = np.stack([self._left_before(client, timestep) for client in clients.tolist()])
        return _over_those_left(super().prior(clients, timestep), left)

    def rows(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        found = [self._stream(client, purpose) for client in clients.tolist()]
        return np.stack([rows[timestep - 1] for rows, _ in found]), np.stack([each[timestep - 1] for _, each in found])

    def _left_before(self, client: int, timestep: int) -> Ints:
        labels = self._stream(client, "stream")[1][: timestep - 1]
        return self._counts - np.bincount(labels.ravel(), minlength=len(self._counts))

    @property
    def _counts(self) -> Ints:
        return np.array([len(rows) for rows in self.rows_by_class])

    def _stream(self, client: int, purpose: str) -> tuple[Ints, Ints]:
        if (purpose, client) not in self._streams:
            draws = self.seeds.generator(f"{purpose} once", client=client)
            order = [draws.permutation(rows) for rows in self.rows_by_class]
            used, rows, labels = np.zeros(len(order), dtype=np.int64), [], []
            for timestep in range(1, self.num_timesteps + 1):
                prior = ShiftStreams.prior(self, np.array([client]), timestep)[0]
                drawn = _drawn(prior, self._counts - used, self.settings.samples, draws)
                for label in drawn.tolist():
                    rows.append(order[label][used[label]])
                    used[label] += 1
                labels.append(drawn)
            shape = (self.num_timesteps, self.settings.samples)
            self._streams[purpose, client] = np.array(rows).reshape(shape), np.stack(labels)
        return self._streams[purpose, client]


def _drawn(prior: Floats, left: Ints, size: int, draws: np.random.Generator) -> Ints:
    """Labels of a batch from a prior; what a class cannot give is drawn again from the others."""
    labels = np.empty(0, dtype=np.int64)
    while len(labels) < size:
        there = left - np.bincount(labels, minlength=len(left))
        more = draws.choice(len(left), size - len(labels), p=_over_those_left(prior, there))
        earlier = (more[:, None] == more[None, :]).astype(np.int64)
        labels = np.concatenate([labels, more[np.tril(earlier, -1).sum(1) < there[more]]])
    return labels


def _over_those_left(prior: Floats, left: Ints) -> Floats:
    """A prior over the classes that have images left, `[..., K]`; by what is left where it has none of them."""
    shares = np.where(left > 0, prior, 0.0)
    total = shares.sum(-1, keepdims=True)
    return np.asarray(np.where(total > 1e-9, shares / np.maximum(total, 1e-9), left / left.sum(-1, keepdims=True)))
