"""How much of a change in a layer's statistics a change of class mix explains.

The mean of a batch moves for two reasons: the inputs changed, or other classes are in the batch. With the class-wise
means of a reference set the second part can be computed for any class prior, and taken out.

What earlier batches left is remembered (`conditions.py`).

Axes: *B any leading axes, N reference samples, K classes, C channels.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.maths.losses import one_hot
from fedade.methods.fed_ade_plus.conditions import Residual, positive, squared_ratio

LEAST_SPREAD = 0.05
"""Of a channel's variance, as a share of its layer's mean: one that no sample moved
would prove anything once it moves."""

SHARE_DOUBT = 0.5
"""By how many standard deviations of one channel a layer's explained share may be greater than it seems: the mean over
channels, which resemble each other, is about twice as sure as one of them."""


class ClassMoments(NamedTuple):
    """A value per sample and channel, seen through its classes."""

    means: Float[Tensor, "*B K C"]
    """Means of every class, drawn towards the common mean as far as they are noise."""
    within: Float[Tensor, "*B C"]
    """Variance of a sample around the mean of its class."""
    scarcity: Float[Tensor, " K"]
    """1 / N_k: how uncertain the mean of a class is, in units of `within`."""


def class_moments(values: Float[Tensor, "*B N C"], labels: Int[Tensor, " N"], num_classes: int) -> ClassMoments:
    """Class means with empirical-Bayes shrinkage (Efron and Morris, 1973), per channel.

    A class without samples has the common mean.
    """
    membership = one_hot(labels, num_classes, values.dtype)
    counts = membership.sum(0)
    scarcity = 1 / counts.clamp(min=1)
    raw = (membership.mT @ values) * scarcity.unsqueeze(-1)
    present = (counts > 0).to(values.dtype)
    common = (present.unsqueeze(-1) * raw).sum(-2, keepdim=True) / present.sum()
    raw = torch.where(counts.unsqueeze(-1) > 0, raw, common)
    freedom = (counts.sum() - present.sum()).clamp(min=1)
    within = (values - raw[..., labels, :]).square().sum(-2) / freedom
    within = torch.maximum(within, LEAST_SPREAD * within.mean(-1, keepdim=True))
    noise = within * (present * scarcity).sum() / present.sum()
    spread = (raw - common).square().sum(-2) / (present.sum() - 1).clamp(min=1)
    share = (spread - noise).clamp(min=0) / spread.clamp(min=torch.finfo(values.dtype).tiny)
    return ClassMoments(common + share.unsqueeze(-2) * (raw - common), within, scarcity)


def explained_share(moments: ClassMoments) -> Float[Tensor, "*B"]:
    """Share of the values' variance that lies between the classes, in [0, 1], mean over the channels."""
    return _share(moments, doubt=0.0)


def greatest_share(moments: ClassMoments) -> Float[Tensor, "*B"]:
    """The explained share as large as it may be, since few labelled samples show it only roughly."""
    return _share(moments, doubt=SHARE_DOUBT)


def _share(moments: ClassMoments, doubt: float) -> Float[Tensor, "*B"]:
    """With the classes' variance taken to be greater by so many standard deviations of its estimate.

    The means were drawn together to s of their distances, s = 1 − noise / spread: their spread is s² of what was seen,
    while s of it is what the classes are apart.
    """
    freedom = max(1, moments.means.shape[-2] - 1)
    drawn = (moments.means - moments.means.mean(-2, keepdim=True)).square().sum(-2) / freedom
    noise = moments.within * moments.scarcity.mean()
    between = (drawn + (drawn.square() + 4 * noise * drawn).sqrt()) / 2
    deviation = ((2 * between + noise) * noise * 2 / freedom).sqrt()
    between = (between + doubt * deviation) * freedom / (freedom + 1)
    total = (between + moments.within).clamp(min=torch.finfo(between.dtype).tiny)
    return (between / total).mean(-1)


class Expected(NamedTuple):
    """What a class mix explains of a batch's mean."""

    mean: Float[Tensor, "*B C"]
    spread: Float[Tensor, "*B C"]
    """Variance of a sample under the reference's law and this class mix: its mean over n varies by `spread / n`."""
    uncertainty: Float[Tensor, "*B C"]
    """Variance of what is expected, since the reference set is finite."""


class Shift(NamedTuple):
    """What is believed of a residual."""

    size: Float[Tensor, "*B C"]
    trust: Float[Tensor, "*B 1"]
    """The share of the residual that was kept: 0 where chance and classes explain it, near 1 where they cannot."""


def expected_under(prior: Float[Tensor, " K"], moments: ClassMoments) -> Expected:
    """Σ_k q_k m_k; a sample varies by `within` and by the class means' variance under q, what is expected by
    `within · Σ q_k² / N_k`."""
    mean = prior @ moments.means
    spread = moments.within + prior @ (moments.means - mean.unsqueeze(-2)).square()
    return Expected(mean, spread, positive(moments.within * (prior.square() * moments.scarcity).sum()))


def believed(residual: Residual, expected: Expected, doubt: float) -> Shift:
    """A residual, shrunk towards 0 by its own evidence (James and Stein, 1961).

    The mean ratio of its squares to their variance is 1 by chance; of a ratio R the share 1 − doubt / R is kept.
    `doubt` 0 keeps everything.
    """
    chance = torch.addcdiv(expected.uncertainty, expected.spread, residual.samples)
    trust = torch.rsub(squared_ratio(residual.size, chance).reciprocal(), 1, alpha=doubt).clamp(min=0)
    return Shift(trust * residual.size, trust)
