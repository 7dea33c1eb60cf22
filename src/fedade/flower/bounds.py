"""How far one client may move the average: what the fleet's own updates tell, instead of a constant."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedade.flower.wire import Named

RECENT = 64
"""Updates that a bound remembers: a few exchanges of a small fleet, about one of a large one."""

MAJORITY = 3
"""Participants of whom a single liar is a minority; fewer cannot raise the bound by themselves."""

ROUNDING = 1.001
"""An update that was scaled back before it was sent may lie this much outside, and is not worth a word."""


def distance(uplink: Named, shared: Named) -> float:
    """How far an update lies from the shared layers that it started from."""
    return norm(value - shared[name] for name, value in uplink.items() if name in shared)


def norm(values: Iterable[Tensor]) -> float:
    """Length of some tensors as one vector."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(value.double())) ** 2 for value in values))


def scaled_back(uplink: Named, shared: Named, bound: float) -> Named:
    """An update in its own direction, no farther from the shared layers than the bound; one within it as it is."""
    moved = distance(uplink, shared)
    if moved <= bound:
        return uplink
    kept = bound / moved
    return {
        name: shared[name] + (value - shared[name]) * kept if name in shared else value
        for name, value in uplink.items()
    }


def learnt_bound(distances: Sequence[float], recent: Sequence[float], factor: float, clients: int) -> float:
    """A multiple of the fleet's median distance: of this exchange or of recent ones, whichever is greater.

    So a fleet whose clients all begin to move is not held back, and a liar who happens to be alone in an exchange
    is measured by those before it. Clients that did not move tell nothing. A fleet of one client has no bound: there is
    nobody to compare it with, and nobody whom it could harm.
    """
    if clients == 1:
        return math.inf
    trusted = distances if len(distances) >= MAJORITY or not any(recent) else ()
    return factor * max(_middle(trusted), _middle(recent))


def remembered(recent: Sequence[float], distances: Sequence[float], clients: int) -> list[float]:
    """What the next bound knows; nothing of a time when a client was alone, which could have taught it anything."""
    return [] if clients == 1 else [*recent, *distances][-RECENT:]


def bounded_weights(samples: Tensor, factor: float) -> Tensor:
    """Sample counts, none of which weighs more than a multiple of the median one."""
    return samples.clamp(max=factor * float(samples.median()))


def _middle(values: Sequence[float]) -> float:
    """The lower median of what is above zero: of two values the smaller, because either may be a liar's."""
    ordered = sorted(value for value in values if value > 0)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0
