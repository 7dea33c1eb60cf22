"""Conditions that inputs come in, such as a corruption at some severity, known again by what they leave in the layers.

A condition stays while batches come and go, and it comes back. What a batch leaves unexplained in a layer
(`class_moments.py`) is compared with what each remembered condition left there, layer by layer, until it is clear
which of them it is; its residuals then count together with the batch's own.

Axes: C channels, M conditions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NEW = 1.5
"""How many times more than by chance a batch differs from the nearest condition if it begins one of its own."""
LASTING = 0.98
"""Share of the samples of a condition that it keeps when another one is met."""
FEWEST_SAMPLES = 1e-6
"""What a condition that was never met counts for, so that there is nothing to divide by 0."""


class Residual(NamedTuple):
    """What class mixes left of the changes in one layer, of one condition or of several."""

    size: Float[Tensor, "*M C"]
    samples: Float[Tensor, "*M"]
    """That show it; 0 where nothing was met yet."""


class ConditionEvidence(NamedTuple):
    """What one layer says of every condition, summed over its channels."""

    squares: Float[Tensor, " M"]
    """Square of the difference between the batch and the condition, in units of its variance."""
    widths: Float[Tensor, " M"]
    """Logarithms of that variance: a condition that is known but vaguely agrees with everything."""
    channels: int


class Recognised(NamedTuple):
    """The condition that a batch came in."""

    place: Float[Tensor, " M"]
    """1 for the nearest condition, 0 for the others."""
    ratio: Float[Tensor, ""]
    """Mean square of its difference to the batch in units of chance: 1 where it is the same."""


def evidence(size: Float[Tensor, " C"], samples: int, spread: Float[Tensor, " C"], past: Residual) -> ConditionEvidence:
    """How far a batch's residual is from those of every condition.

    The means of n and of n' samples of the same law differ by a variance of `spread (1/n + 1/n')`.
    """
    width = 1 / samples + 1 / past.samples.clamp(min=FEWEST_SAMPLES)
    squares = ((size - past.size).square() / _positive(spread * width.unsqueeze(-1))).sum(-1)
    return ConditionEvidence(squares, len(size) * width.log(), len(size))


def recognise(layers: Sequence[ConditionEvidence]) -> Recognised:
    """The likeliest condition by what the layers say together: minus twice the logarithm of a Gaussian likelihood, by
    channel."""
    channels = sum(one.channels for one in layers)
    ratios = torch.stack([one.squares for one in layers]).sum(0) / channels
    surprises = ratios + torch.stack([one.widths for one in layers]).sum(0) / channels
    place = _at(surprises.argmin(), surprises)
    return Recognised(place, place @ ratios)


def of_condition(past: Residual, found: Recognised) -> Residual:
    """What was met under a condition; nothing where the batch begins one of its own."""
    known = (found.ratio <= NEW).to(past.samples.dtype)
    return Residual(found.place @ past.size, known * (found.place @ past.samples))


def of_only(past: Residual) -> Residual:
    """Where no conditions are told apart: what was met last."""
    return Residual(past.size[0], past.samples[0])


def joined(
    past: Residual, size: Float[Tensor, " C"], samples: int, spread: Float[Tensor, " C"], doubt: float
) -> Residual:
    """A batch's residual and that of one condition, weighted by their samples.

    Of the past samples as many count as the difference allows: all where it is chance, hardly any where something
    changed. `doubt` 0 forgets them all.
    """
    width = 1 / samples + 1 / past.samples.clamp(min=FEWEST_SAMPLES)
    share = (doubt / squared_ratio(size - past.size, spread * width).clamp(min=doubt)).square()
    kept = share * past.samples
    count = kept + samples
    return Residual((kept * past.size + samples * size) / count, count)


def place_to_remember(found: Recognised, samples: Float[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """Where a batch's residuals go: to its condition, or to the one with the fewest samples where it begins another."""
    return torch.where(found.ratio <= NEW, found.place, _at(samples.argmin(), samples)) > 0


def remembered(past: Residual, new: Residual, here: Bool[Tensor, " M"] | None) -> Residual:
    """All conditions with a new residual in one place, while the others fade; without a place, the only one."""
    if here is None:
        return Residual(new.size.unsqueeze(0), new.samples.unsqueeze(0))
    return Residual(
        torch.where(here.unsqueeze(-1), new.size, past.size), torch.where(here, new.samples, LASTING * past.samples)
    )


def squared_ratio(difference: Float[Tensor, " C"], variance: Float[Tensor, " C"]) -> Float[Tensor, ""]:
    """Mean squared difference in units of its variance: 1 by chance."""
    return _positive((difference.square() / _positive(variance)).mean(-1))


def _positive(values: Tensor) -> Tensor:
    return values.clamp(min=torch.finfo(values.dtype).tiny)


def _at(place: Tensor, like: Tensor) -> Tensor:
    """One at a place and zero elsewhere."""
    return (torch.arange(len(like), device=like.device) == place).to(like.dtype)
