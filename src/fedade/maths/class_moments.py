"""How much of a change in a layer's statistics a change of class mix explains.

The mean of a batch moves for two reasons: the inputs changed, or other classes are in the batch. With the class-wise
means of a reference set the second part can be computed for any class prior, and taken out.

Axes: N reference samples, K classes, C channels, M conditions.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.maths.pseudo_labels import one_hot

SAME = 0.5
"""Share of a condition's samples that must agree with a batch if it is to count as the same condition."""
LASTING = 0.98
"""Share of the samples of a condition that it keeps when another one is met."""


class ClassMoments(NamedTuple):
    """A value per sample and channel, seen through its classes."""

    means: Float[Tensor, "K C"]
    """Of every class, drawn towards the common mean as far as they are noise."""
    within: Float[Tensor, " C"]
    """Variance of a sample around the mean of its class."""
    scarcity: Float[Tensor, " K"]
    """1 / N_k: how uncertain the mean of a class is, in units of `within`."""


def class_moments(values: Float[Tensor, "N C"], labels: Int[Tensor, " N"], num_classes: int) -> ClassMoments:
    """Class means with empirical-Bayes shrinkage (Efron and Morris, 1973), per channel.

    A class without samples has the common mean.
    """
    membership = one_hot(labels, num_classes, values.dtype)
    counts = membership.sum(0)
    scarcity = 1 / counts.clamp(min=1)
    raw = (membership.mT @ values) * scarcity.unsqueeze(-1)
    present = (counts > 0).to(values.dtype)
    common = (present.unsqueeze(-1) * raw).sum(0) / present.sum()
    raw = torch.where(counts.unsqueeze(-1) > 0, raw, common)
    freedom = (counts.sum() - present.sum()).clamp(min=1)
    within = (values - raw[labels]).square().sum(0) / freedom
    noise = within * (present * scarcity).sum() / present.sum()
    spread = (raw - common).square().sum(0) / (present.sum() - 1).clamp(min=1)
    share = (spread - noise).clamp(min=0) / spread.clamp(min=torch.finfo(values.dtype).tiny)
    return ClassMoments(common + share * (raw - common), within, scarcity)


def explained_share(moments: ClassMoments) -> Float[Tensor, ""]:
    """Share of the values' variance that lies between the classes, in [0, 1], mean over the channels."""
    between = (moments.means - moments.means.mean(0)).square().mean(0)
    total = (between + moments.within).clamp(min=torch.finfo(between.dtype).tiny)
    return (between / total).mean()


class Residuals(NamedTuple):
    """What class mixes left of earlier changes: one for each of the conditions that inputs were met in."""

    sizes: Float[Tensor, "M C"]
    samples: Float[Tensor, " M"]
    """That show it; 0 where nothing was met yet."""


class Shift(NamedTuple):
    """What is believed of a residual."""

    size: Float[Tensor, " C"]
    trust: Float[Tensor, ""]
    """The share of the residual that was kept: 0 where chance and classes explain it, near 1 where they cannot."""


def unexplained_shift(
    mean: Float[Tensor, " C"],
    samples: int,
    prior: Float[Tensor, " K"],
    moments: ClassMoments,
    doubt: float,
    past: Residuals,
) -> tuple[Shift, Residuals]:
    """The batch's mean minus Σ_k q_k m_k, together with past residuals that agree with it, shrunk towards 0 by its own
    evidence (James and Stein, 1961); and the residuals to remember.

    Under the reference's law the mean of n samples varies by `(within + between) / n`, with `between` the variance of
    the class means under q, and what is expected by `within · Σ q_k² / N_k`. The mean ratio of squares to that is 1 by
    chance; of a ratio R the share 1 − doubt / R is kept. `doubt` 0 keeps everything and remembers nothing.
    """
    expected = prior @ moments.means
    spread = moments.within + prior @ (moments.means - expected).square()
    size, count, residuals = _together(past, mean - expected, samples, spread, doubt)
    chance = spread / count + moments.within * (prior.square() * moments.scarcity).sum()
    trust = (1 - doubt / _ratio(size, chance)).clamp(min=0)
    return Shift(trust * size, trust), residuals


def _together(
    past: Residuals, size: Float[Tensor, " C"], samples: int, spread: Float[Tensor, " C"], doubt: float
) -> tuple[Float[Tensor, " C"], Float[Tensor, ""], Residuals]:
    """A residual and the past one that agrees best with it, weighted by their samples; how many these are; and what is
    then remembered.

    Of the past samples as many count as the difference allows: all where it is chance, hardly any where something
    changed. Where less than `SAME` of them do, the batch begins a condition of its own, in place of the one with the
    fewest samples.
    """
    least, places = torch.finfo(spread.dtype).tiny, torch.arange(len(past.samples), device=spread.device)
    apart = spread / samples + spread / past.samples.clamp(min=least).unsqueeze(-1)
    share = (doubt / _ratio(size - past.sizes, apart).clamp(min=doubt)).square()
    nearest = (places == (share * past.samples).argmax()).to(spread.dtype)
    kept = nearest @ (share * past.samples)
    count = kept + samples
    joined = (kept * (nearest @ past.sizes) + samples * size) / count
    fewest = (places == past.samples.argmin()).to(spread.dtype)
    here = torch.where(nearest @ share >= SAME, nearest, fewest) > 0
    remembered = Residuals(
        torch.where(here.unsqueeze(-1), joined, past.sizes), torch.where(here, count, LASTING * past.samples)
    )
    return joined, count, remembered


def _ratio(difference: Float[Tensor, "*M C"], variance: Float[Tensor, "*M C"]) -> Float[Tensor, "*M"]:
    """Mean squared difference in units of its variance: 1 by chance."""
    least = torch.finfo(variance.dtype).tiny
    return (difference.square() / variance.clamp(min=least)).mean(-1).clamp(min=least)
