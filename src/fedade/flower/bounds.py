"""What one client may do to the average: answers are checked, updates bounded, and the centre may be a robust one."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.tree import Tree, tree_map
from fedade.flower.settings import FlowerSettings
from fedade.flower.wire import Answer, Named, TurnOutcome

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
    nearer = {name: start + (uplink[name] - start) * kept for name, start in shared.items() if name in uplink}
    return {**uplink, **nearer}


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


def check_update(answer: Answer, asked: Named | None, shared: Named, settings: FlowerSettings) -> None:
    """Refuse an update that is not what was asked for; the error says what is wrong with it.

    Names, shapes, types, finite values, and how far it lies from the shared layers that were sent, in norms of these.
    What the method sends beside them is measured by its own norm; where nothing is shared, all is held against `asked`,
    which a client that has just begun would send.
    """
    uplink = answer.uplink
    if asked is None or answer.outcome is not TurnOutcome.done:
        if uplink:
            reason = "which was not asked for" if asked is None else f"but says {answer.outcome.value}"
            raise FedadeError(f"it holds an update, {reason}")
        return
    if answer.samples < 1:
        raise FedadeError("it counts no sample")
    if answer.samples > settings.max_samples:
        raise FedadeError(f"it counts {answer.samples} samples, more than {settings.max_samples} (flower.max_samples)")
    check_tensors(uplink, asked)
    moved = norm(uplink[name] - shared[name] if name in shared else uplink[name] for name in uplink)
    allowed = settings.max_update * norm((shared or asked).values())
    if moved > allowed:
        raise FedadeError(f"it moves by {moved:.3g}, more than {allowed:.3g} (flower.max_update)")


def check_tensors(uplink: Named, asked: Named) -> None:
    """Refuse what has other names, shapes or types than it should, or values that are no numbers."""
    if uplink.keys() != asked.keys():
        odd = sorted(uplink.keys() ^ asked.keys())
        raise FedadeError(f"it {'holds' if odd[0] in uplink else 'lacks'} {odd[0]}")
    for name, expected in asked.items():
        found = uplink[name]
        if found.shape != expected.shape:
            raise FedadeError(f"{name} has shape {list(found.shape)}, expected {list(expected.shape)}")
        if found.dtype != expected.dtype:
            raise FedadeError(f"{name} is {found.dtype}, expected {expected.dtype}")
        if found.is_floating_point() and not found.isfinite().all():
            raise FedadeError(f"{name} holds NaN or infinite values")


def median(values: Tensor) -> Tensor:
    """The middle value of each coordinate; of an even number, the mean of the middle two."""
    ordered, count = values.sort(0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(values: Tensor, trim: float) -> Tensor:
    """The mean of each coordinate without the share `trim` of the values at either end."""
    cut = int(trim * len(values))
    return values.sort(0).values[cut : len(values) - cut].mean(0)


def centred(uplinks: Tree, settings: FlowerSettings) -> Tree:
    """Uplinks in whose place every participant sends the common centre, so that any mean of them is the centre."""
    if settings.aggregation == "mean":
        return uplinks

    def centre(values: Tensor) -> Tensor:
        found = median(values) if settings.aggregation == "median" else trimmed_mean(values, settings.trim)
        return found.expand_as(values)

    return tree_map(centre, uplinks)


def refuse_personal_downlinks(downlink: Tree, aggregation: str) -> None:
    """A centre is the same for all; a method that answers participants differently would lose its point."""
    if aggregation != "mean" and downlink:
        raise FedadeError(
            f"flower.aggregation: {aggregation} does not go with a method that answers each participant; use mean"
        )
