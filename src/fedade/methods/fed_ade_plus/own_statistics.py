"""Statistics of each sample's own, where samples of one batch came under different conditions.

Images of one batch may be corrupted in different ways, and what corrects their mean fits none of them. A sample's own
mean and variance in a layer tell what it came under, but they differ from sample to sample anyway: how much, the
reference set shows. With variances V among the batch's samples and V₀ among those of the reference set, the best linear
guess of what a sample's condition did is (1 - V₀ / V) of its distance to the batch's mean (Robbins, 1956). By chance
some channels differ more than usual in any batch, and where all its samples are of one class, little is enough to take
them for another. So layers judge together whether a batch came under several conditions: as soon as in one of them V /
V₀ is great on the mean of its channels. Samples of other batches have the batch's statistics in common. Only layers
that tell no classes apart have such statistics: in others they would remove what a sample shows.

Axes: 2 moments (mean, variance of a sample's pixels), n samples, C channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedade import kernels
from fedade.core.normalisation import BySampleMoments, SampleMoments, Statistics
from fedade.methods.fed_ade_plus.conditions import positive

DOUBT = 1.5
"""How many times as much as the reference set's samples must differ, since corrupted ones vary more by themselves: in a
channel, and before that on the mean of all channels of a layer."""
JUDGED_BY = 50
"""Samples that it takes to judge how much they differ, and what their class mix is: a few often differ twice as much as
usual by chance. A batch of fewer is judged together with those before."""
LEAST_SPREAD = 0.05
"""Of a channel, as a share of its layer's mean."""
LEAST_VARIANCE = 0.1
"""Share of the common variance that is left at least to a sample."""
NAME = "own"
"""Of what samples have of their own in all layers, among the tensors of a model: none has it."""
OwnShare = Float[Tensor, "2 2 C"]
"""Base and share: a sample's statistics are `base + share · (its own mean and variance)`."""


def sample_moments(inputs: Tensor | SampleMoments) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, C]`, in float32."""
    if isinstance(inputs, SampleMoments):
        return inputs.values
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


class OwnOfBatch(NamedTuple):
    """What samples of a batch have of their own in a layer."""

    share: OwnShare
    statistics: Statistics
    """`[n, C]`; those in common of a sample that has none to differ from."""
    difference: Float[Tensor, ""] | None
    """V / V₀ of the layer that shows most, of those so far."""
    apart: Float[Tensor, " 2"]
    """V / V₀ of this layer's means and variances, on the mean of its channels."""


def of_samples(
    common: Statistics,
    moments: Float[Tensor, "2 n C"],
    usual: Float[Tensor, "2 C"],
    before: Float[Tensor, " 2"],
    earlier: Float[Tensor, ""] | None = None,
) -> OwnOfBatch:
    """By moments of a batch's samples, those that are usual, how far apart samples were in this layer `before`, and the
    difference that earlier layers show."""
    if moments.shape[-2] == 1:
        return OwnOfBatch(none_own(common), common, earlier, before)
    counts = min(1.0, moments.shape[-2] / JUDGED_BY)

    def plainly() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own = own_moments(moments)
        apart = (1 - counts) * before + counts * (own.var(-2) / positive(usual)).mean(-1)
        difference = apart.amax() if earlier is None else torch.maximum(apart.amax(), earlier)
        share = own_share(common, own, usual, difference)
        return share, applied(share, own, common.variance), difference, apart

    rule = DOUBT, LEAST_VARIANCE, counts
    share, statistics, *judged = kernels.own_statistics(moments, common, usual, before, earlier, rule, plainly)
    return OwnOfBatch(share, Statistics(*statistics), *judged)


def as_usual(spreads: Mapping[str, Tensor]) -> Float[Tensor, "L 2"]:
    """How far apart samples are in layers in which nothing was seen yet."""
    ones = [spread.new_ones(2) for spread in spreads.values()]
    return torch.stack(ones) if ones else torch.empty(0, 2)


def none_own(common: Statistics) -> OwnShare:
    """Of samples that have all in common."""
    base = torch.stack(common)
    return torch.stack((base, torch.zeros_like(base)))


def own_share(
    common: Statistics, own: Float[Tensor, "2 n C"], usual: Float[Tensor, "2 C"], difference: Float[Tensor, ""]
) -> OwnShare:
    """The common variance is that of all pixels, of which samples' means explain as much as they are believed."""
    apart = own.var(-2)
    share = (1 - DOUBT * usual / positive(apart)).clamp(min=0) * (difference > DOUBT)
    explained = share[0] * (2 - share[0]) * apart[0]
    base = torch.stack((common.mean, common.variance - explained)) - share * own.mean(-2)
    return torch.stack((base, share))


def applied(share: OwnShare, own: Float[Tensor, "2 n C"], common_variance: Tensor) -> Float[Tensor, "2 n C"]:
    """Statistics of samples with such means and variances."""
    base, times = share.unsqueeze(-2)
    mean, variance = base + times * own
    return torch.stack((mean, torch.maximum(variance, LEAST_VARIANCE * common_variance)))


def joined(shares: Mapping[str, OwnShare]) -> Float[Tensor, " numbers"]:
    """Those of all layers one after the other: a client's state is moved tensor by tensor."""
    return torch.cat([share.flatten() for share in shares.values()])


@dataclass(frozen=True)
class OwnStatistics(BySampleMoments):
    """A model's statistics, and in some layers of each sample its own."""

    known: Tensor = field(compare=False)  # it is part of the model that a pass is known by
    """As `joined`."""
    channels: Mapping[str, int] = field(compare=False)
    """How many each of these layers has."""

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each layer's part lies."""
        ends = accumulate((4 * number for number in self.channels.values()), initial=0)
        return {layer: slice(*both) for layer, both in zip(self.channels, pairwise(ends), strict=True)}

    def looks_at(self, layer: str) -> bool:
        return layer in self.channels

    def statistics(self, layer: str, inputs: Tensor | SampleMoments, deployed: Statistics) -> Statistics:
        if not self.looks_at(layer):
            return deployed
        share = self.known[self.places[layer]].view(2, 2, -1)
        moments, variance = sample_moments(inputs), deployed.variance
        found = kernels.known_statistics(
            moments, share, variance, LEAST_VARIANCE, lambda: applied(share, own_moments(moments), variance)
        )
        return Statistics(*found)
