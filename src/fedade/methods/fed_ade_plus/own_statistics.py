"""Statistics of each sample's own, where samples of one batch came under different conditions.

Images of one batch may be corrupted in different ways, and what corrects their mean fits none of them. A sample's own
mean and variance in a layer tell what it came under, but they differ from sample to sample anyway: how much, the
reference set shows. With variances V among the batch's samples and V₀ among those of the reference set, the best linear
guess of what a sample's condition did is (1 - V₀ / V) of its distance to the batch's mean (Robbins, 1956). So samples
that differ no more than the reference set's have the batch's statistics in common. Only layers that tell no classes
apart have such statistics: in others they would remove what a sample shows.

Axes: 2 moments (mean, variance of a sample's pixels), n samples, C channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedade import kernels
from fedade.core.normalisation import Statistics
from fedade.methods.fed_ade_plus.conditions import positive

DOUBT = 1.5
"""How many times as much as the reference set's samples must differ, since corrupted ones vary more by themselves."""
LEAST_SPREAD = 0.05
"""Of a channel, as a share of its layer's mean."""
LEAST_VARIANCE = 0.1
"""Share of the common variance that is left at least to a sample."""
PREFIX = "own."
"""Of the names of what samples have of their own."""
_NAMES = f"{PREFIX}{{}}.base", f"{PREFIX}{{}}.share"


class OwnShare(NamedTuple):
    """A sample's statistics are `base + share · (its own mean and variance)`."""

    base: Float[Tensor, "2 C"]
    share: Float[Tensor, "2 C"]


def sample_moments(inputs: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, C]`, in float32."""
    if inputs.ndim == 4:
        return kernels.channel_moments(inputs)
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    if exact.ndim > 2:
        return torch.stack((exact.flatten(2).mean(-1), exact.flatten(2).square().mean(-1)))
    return torch.stack((exact, exact.square()))


def own_moments(moments: Float[Tensor, "2 n C"]) -> Float[Tensor, "2 n C"]:
    """Mean and variance of every sample, from its mean and mean square."""
    mean, square = moments
    return torch.stack((mean, (square - mean.square()).clamp(min=0)))


def spread(moments: Float[Tensor, "2 n C"]) -> Float[Tensor, "2 C"]:
    """Variance of samples' means and variances; at least a little where no sample moved a channel."""
    found = own_moments(moments).var(-2)
    return torch.maximum(found, LEAST_SPREAD * found.mean(-1, keepdim=True))


def of_samples(
    common: Statistics, moments: Float[Tensor, "2 n C"], usual: Float[Tensor, "2 C"]
) -> tuple[OwnShare, Statistics]:
    """What samples of a batch have of their own, and the statistics `[n, C]` that follow; those in common of a sample
    that has none to differ from."""
    if moments.shape[-2] == 1:
        return none_own(common), common

    def plainly() -> tuple[Tensor, Tensor]:
        own = own_moments(moments)
        share = own_share(common, own, usual)
        return torch.stack(share), torch.stack(applied(share, own, common))

    rule = DOUBT, LEAST_VARIANCE
    share, statistics = kernels.own_statistics(moments, common, usual, rule, plainly)
    return OwnShare(*share), Statistics(*statistics)


def none_own(common: Statistics) -> OwnShare:
    """Of samples that have all in common."""
    base = torch.stack(common)
    return OwnShare(base, torch.zeros_like(base))


def own_share(common: Statistics, own: Float[Tensor, "2 n C"], usual: Float[Tensor, "2 C"]) -> OwnShare:
    """The common variance is that of all pixels, of which samples' means explain as much as they are believed."""
    apart = own.var(-2)
    share = (1 - DOUBT * usual / positive(apart)).clamp(min=0)
    explained = share[0] * (2 - share[0]) * apart[0]
    base = torch.stack((common.mean, common.variance - explained)) - share * own.mean(-2)
    return OwnShare(base, share)


def applied(share: OwnShare, own: Float[Tensor, "2 n C"], common: Statistics) -> Statistics:
    """Statistics of samples with such means and variances."""
    mean, variance = share.base.unsqueeze(-2) + share.share.unsqueeze(-2) * own
    return Statistics(mean, torch.maximum(variance, LEAST_VARIANCE * common.variance))


def named(shares: Mapping[str, OwnShare]) -> dict[str, Tensor]:
    """By names that no tensor of a model has."""
    return {name.format(layer): value for layer, own in shares.items() for name, value in zip(_NAMES, own, strict=True)}


@dataclass(frozen=True)
class OwnStatistics:
    """A model's statistics, and in some layers of each sample its own."""

    known: Mapping[str, Tensor] = field(compare=False)  # the tensors are part of the model that a pass is known by
    """As `named`."""

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        base, share = (self.known.get(name.format(layer)) for name in _NAMES)
        if base is None or share is None:
            return deployed
        return applied(OwnShare(base, share), own_moments(sample_moments(inputs)), deployed)
