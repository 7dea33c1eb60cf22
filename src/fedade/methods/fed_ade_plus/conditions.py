"""Conditions that inputs come in, such as a corruption at some severity, known again by what they leave in the layers.

A condition stays while batches come and go, and it comes back. What a batch leaves unexplained in a layer
(`class_moments.py`) is compared with what each remembered condition left there, layer by layer, until it is clear
which of them it is; its residuals then count together with the batch's own.

Axes: M conditions, B moments, C channels of one layer or of several, L layers: 1 in functions of a single layer.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NEW = 1.5
"""How many times more than by chance a batch differs from the nearest condition if it begins one of its own."""
LASTING = 0.98
"""Share of the samples of a condition that it keeps when another one is met."""
FEWEST_SAMPLES = 1e-6
"""What a condition that was never met counts for, so that there is nothing to divide by 0."""
_TINY = torch.finfo(torch.float32).tiny


class Residual(NamedTuple):
    """What class mixes left of the changes in layers, of one condition or of several."""

    size: Float[Tensor, "*M B C"]
    samples: Float[Tensor, "*M B L"]
    """That show it; 0 where nothing was met yet."""


class Report(NamedTuple):
    """What batches left unexplained in all layers, of which nobody was told yet."""

    residual: Float[Tensor, "B C"]
    samples: Float[Tensor, ""]


class Evidence(NamedTuple):
    """What layers say of every condition, summed over moments and channels."""

    squares: Float[Tensor, " M"]
    """Square of the difference between the batch and the condition, in units of its variance."""
    widths: Float[Tensor, " M"]
    """Logarithms of that variance: a condition that is known but vaguely agrees with everything."""
    channels: int


class Recognised(NamedTuple):
    """The condition that a batch came in."""

    place: Int[Tensor, " 1"]
    """The place of the likeliest condition."""
    ratio: Float[Tensor, " 1"]
    """Mean square of its difference to the batch in units of chance: 1 where it is the same."""


def width(samples: Float[Tensor, "B L"] | int, past: Residual) -> Float[Tensor, "M B L"]:
    """Variance of the difference between the means of n and of n' samples of one law, in units of a sample's own."""
    return 1 / samples + 1 / past.samples.clamp(min=FEWEST_SAMPLES)


def squared_differences(
    size: Float[Tensor, "B C"], past: Float[Tensor, "M B C"], precision: Float[Tensor, "M B C"]
) -> Float[Tensor, "M B 1"]:
    """How far a batch's residual is from those of every condition, summed over channels. `precision` is one over the
    variance that the difference has by chance."""
    return ((size - past).square() * precision).sum(-1, keepdim=True)


def together(first: Evidence, second: Evidence) -> Evidence:
    return Evidence(first.squares + second.squares, first.widths + second.widths, first.channels + second.channels)


def recognise(evidence: Evidence) -> Recognised:
    """The likeliest condition: minus twice the logarithm of a Gaussian likelihood, by channel."""
    place = (evidence.squares + evidence.widths).argmin(-1, keepdim=True)
    return Recognised(place, evidence.squares.index_select(0, place) / evidence.channels)


def of_condition(past: Residual, squares: Float[Tensor, "M B 1"], found: Recognised) -> tuple[Residual, Tensor]:
    """What was met under a condition and how far it is; no samples where the batch begins one of its own."""
    size, samples, far = (values.index_select(0, found.place) for values in (*past, squares))
    return Residual(size, samples * (found.ratio <= NEW)), far


def own_or_common(
    past: Residual, squares: Float[Tensor, "M B 1"], widths: Float[Tensor, " M"], evidence: Evidence | None
) -> tuple[Residual, Tensor]:
    """What a layer that recognises nothing itself goes on from, and how far it is. Its own residual, in the first
    place, or that of the common condition, after it, that earlier layers recognised: whichever is likelier."""
    if evidence is None:
        return Residual(*(values[:1] for values in past)), squares[:1]
    common, (heard, wide, channels) = len(widths) - 1, evidence
    found = recognise(Evidence(heard[-common:], wide[-common:], channels))
    places = torch.cat([torch.zeros_like(found.place), 1 + found.place])
    size, samples, far, width = (values.index_select(0, places) for values in (*past, squares, widths))
    unlikely = far.sum((-2, -1)) + past.size.shape[-1] * width
    refused = torch.cat([torch.zeros_like(found.ratio), torch.where(found.ratio <= NEW, 0.0, torch.inf)])
    likelier = (unlikely + refused).argmin(-1, keepdim=True)
    size, samples, far = (values.index_select(0, likelier) for values in (size, samples, far))
    return Residual(size, samples), far


def joined(
    past: Residual,
    squares: Float[Tensor, "1 B 1"],
    size: Float[Tensor, "B C"],
    samples: Float[Tensor, "B 1"] | int,
    doubt: float,
) -> Residual:
    """A batch's residual and that of one condition, weighted by their samples. Of the past samples as many count as the
    difference, in squares, allows: all where it is chance, hardly any where something changed. `doubt` 0 forgets them
    all."""
    allowed = doubt * size.shape[-1]
    kept = (allowed / squares.clamp(min=max(allowed, _TINY))).square() * past.samples
    count = kept + samples
    return Residual((kept * past.size + samples * size) / count, count)


def place_to_remember(found: Recognised, samples: Float[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """Where a batch's residuals go: to its condition, or to the one with the fewest samples where it begins another."""
    place = torch.where(found.ratio <= NEW, found.place, samples.argmin(-1, keepdim=True))
    return torch.arange(len(samples), device=samples.device) == place


def remembered(past: Residual, new: Residual, here: Bool[Tensor, " M"]) -> Residual:
    """All conditions with a new residual in one place, while the others fade."""
    place = here[:, None, None]
    return Residual(torch.where(place, new.size, past.size), torch.where(place, new.samples, LASTING * past.samples))


def squared_ratio(difference: Float[Tensor, "*B C"], variance: Float[Tensor, "*B C"]) -> Float[Tensor, "*B 1"]:
    """Mean squared difference in units of its variance, which is positive: 1 by chance."""
    return (difference.square() / variance).mean(-1, keepdim=True).clamp(min=_TINY)


def positive(values: Tensor) -> Tensor:
    """Values that can be divided by."""
    return values.clamp(min=_TINY)
