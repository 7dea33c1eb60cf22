"""UniTTA's grid (Du et al., 2024): classes and corruptions as two Markov chains, correlated and imbalanced at will.

An axis of N states has a chance ρ to stay in its head state and an imbalance I, head to tail; state i is as frequent as
I^(-i / (N - 1)). Where chances to stay can give that law, 1 - (1 - ρ) I^(i / (N - 1)) for state i, nothing else is
needed. Where they cannot, all stay by ρ, and quotas force the law: what has had its share is closed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedade.data.corruptions.registry import MAX_SEVERITY
from fedade.scenarios.stream_laws.laid_out import LaidOutStreams, whole_counts
from fedade.scenarios.streams import Floats, Ints

CLASS_STAY, CORRUPTION_STAY = 0.95, 0.85
"""Chances to stay where an axis is correlated (`n`); `i` draws anew each time, `1` stays until a quota is full."""
CLASS_IMBALANCE, CORRUPTION_IMBALANCE = 10.0, 5.0


class Axis(NamedTuple):
    """One of the two chains."""

    stay: Floats
    """Chance to stay in each state; else any other is as likely."""
    shares: Floats
    """How frequent each state is in all."""
    free: bool
    """Whether the chain has these shares by itself, without quotas."""


@dataclass(frozen=True)
class MarkovStreams(LaidOutStreams):
    """A chain of its own for each client, whose heads are permuted; time order is kept within a batch. Where labels do
    not shift classes are drawn anew and even; where inputs do not, they are clean."""

    _chains: dict[int, tuple[Ints, Ints]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Labels and corruptions of a client, `[n T]`, made when it is first asked for."""

    def labels_of(self, client: int) -> Ints:
        return self._chain(client)[0]

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        names = np.stack([self._chain(client)[1][self.samples_at(timestep)] for client in clients.tolist()])
        return names, np.full(names.shape, MAX_SEVERITY * self.settings.shifts_inputs, dtype=np.int64)

    def _chain(self, client: int) -> tuple[Ints, Ints]:
        if client not in self._chains:
            settings, draws = self.settings, self.seeds.generator("markov", client=client)
            letters = settings.markov if settings.shifts_labels else f"i1{settings.markov[2:]}"
            classes = axis(len(self.rows_by_class), letters[:2], CLASS_STAY, CLASS_IMBALANCE)
            corruptions = axis(len(self.corruptions), letters[2:], CORRUPTION_STAY, CORRUPTION_IMBALANCE)
            labels, names = chain(classes, corruptions, settings.samples * self.num_timesteps, draws)
            order, heads = draws.permutation(len(classes.stay)), draws.permutation(len(corruptions.stay))
            self._chains[client] = order[labels], heads[names]
        return self._chains[client]


def axis(size: int, letters: str, correlated: float, imbalanced: float) -> Axis:
    """The chain that two letters stand for: correlation i, n or 1, and imbalance 1 or u."""
    head = {"i": 1 / size, "n": correlated, "1": 1.0}[letters[0]]
    imbalance = imbalanced if letters[1] == "u" else 1.0
    growth = imbalance ** (np.arange(size) / max(1, size - 1))
    free = head < 1 and (1 - head) * imbalance <= 1 - 1 / size
    stay = 1 - (1 - head) * growth if free else np.full(size, head)
    return Axis(stay, (1 / growth) / (1 / growth).sum(), free or size == 1)


def chain(classes: Axis, corruptions: Axis, length: int, draws: np.random.Generator) -> tuple[Ints, Ints]:
    """Classes and corruptions of so many samples, by their places in the axes; both begin at their heads.

    A move into what is closed is drawn again. Whoever stands in what has just closed goes anywhere that is open, or to
    the next corruption where corruptions only change when they close.
    """
    taken, quota = _quotas(classes, corruptions, length)
    counts = np.zeros_like(quota)
    next_class, next_corruption = _moves(classes, draws), _moves(corruptions, draws)
    label, name, visited = 0, 0, np.empty((2, length), dtype=np.int64)
    for place in range(length):
        visited[:, place] = label, name
        here = taken(label, name)
        counts[here] += 1
        if counts[here] < quota[here]:
            proposed = next_class(label), next_corruption(name)
            while counts[there := taken(*proposed)] >= quota[there]:
                proposed = next_class(label), next_corruption(name)
            label, name = proposed
        elif place < length - 1:
            label, name = _anywhere(classes, corruptions, counts < quota, draws)
    return visited[0], visited[1]


def _quotas(classes: Axis, corruptions: Axis, length: int) -> tuple[Callable[[int, int], tuple[int, int]], Ints]:
    """What closes when it has had its share: places of quotas by class and corruption, and the quotas.

    Classes and corruptions close one by one; an axis that keeps its law by itself counts as a single place, and nothing
    closes where both do.
    """
    shares = np.outer(*(np.ones(1) if axis.free else axis.shares for axis in (classes, corruptions)))
    quota = whole_counts(shares.ravel(), length).reshape(shares.shape)
    by_class, by_corruption = int(not classes.free), int(not corruptions.free)
    return lambda label, name: (label * by_class, name * by_corruption), quota


def _moves(axis: Axis, draws: np.random.Generator) -> Callable[[int], int]:
    """From a state of an axis to the next."""
    stay, others = axis.stay.tolist(), len(axis.stay) - 1

    def moved(state: int) -> int:
        if not others or draws.random() < stay[state]:
            return state
        other = int(draws.random() * others)
        return other + (other >= state)

    return moved


def _anywhere(
    classes: Axis, corruptions: Axis, is_open: NDArray[np.bool_], draws: np.random.Generator
) -> tuple[int, int]:
    """Any open state; of corruptions that change only when they close, the first that is open."""
    spread = np.broadcast_to(is_open, (len(classes.stay), len(corruptions.stay)))
    labels, names = np.nonzero(spread)
    if corruptions.stay[0] == 1:
        labels, names = labels[names == names.min()], names[names == names.min()]
    chosen = draws.integers(len(labels))
    return int(labels[chosen]), int(names[chosen])
