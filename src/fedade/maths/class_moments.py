"""How much of a change in a layer's statistics a change of class mix explains.

The mean of a batch moves for two reasons: the inputs changed, or other classes are in the batch. With the class-wise
means of a reference set the second part can be computed for any class prior, and taken out.

Axes: N reference samples, K classes, C channels.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.maths.pseudo_labels import one_hot


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


class Shift(NamedTuple):
    """What is left of a change after the class mix is taken out."""

    size: Float[Tensor, " C"]
    trust: Float[Tensor, ""]
    """The share of the residual that was kept: 0 where chance and classes explain it, near 1 where they cannot."""


def unexplained_shift(
    mean: Float[Tensor, " C"], samples: int, prior: Float[Tensor, " K"], moments: ClassMoments, doubt: float
) -> Shift:
    """The batch's mean minus Σ_k q_k m_k, shrunk towards 0 by its own evidence (James and Stein, 1961).

    Under the reference's law the residual has variance `(within + between) / n + within · Σ q_k² / N_k`, with `between`
    the variance of the class means under q. The mean ratio of its squares to that is 1 by chance; of a ratio R the
    share 1 − doubt / R is kept. `doubt` 0 keeps everything.
    """
    expected = prior @ moments.means
    residual = mean - expected
    between = prior @ (moments.means - expected).square()
    chance = (moments.within + between) / samples + moments.within * (prior.square() * moments.scarcity).sum()
    ratio = (residual.square() / chance.clamp(min=torch.finfo(chance.dtype).tiny)).mean()
    trust = (1 - doubt / ratio.clamp(min=torch.finfo(ratio.dtype).tiny)).clamp(min=0)
    return Shift(trust * residual, trust)
