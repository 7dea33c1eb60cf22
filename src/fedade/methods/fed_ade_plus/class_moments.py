"""How much of a change in a layer's statistics a change of class mix explains, by what the reference set shows there.

The mean of a batch moves for two reasons: the inputs changed, or other classes are in the batch. With the class-wise
means of a reference set the second part can be computed for any class prior, and taken out. What earlier batches left
is remembered (`conditions.py`). Channels of several layers lie side by side, so that a few operations do for all.

Axes: *B any leading axes, 2 moments (means, then mean squares), N samples, K classes, C channels.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Watching
from fedade.maths.losses import one_hot
from fedade.methods.fed_ade_plus.conditions import Residual, positive, squared_ratio
from fedade.methods.fed_ade_plus.own_statistics import sample_moments, spread

Constant = TypeVar("Constant")
LEAST_SPREAD = 0.05
"""Of a channel's variance, as a share of its layer's mean: one that no sample moved proves anything once it moves."""
SHARE_DOUBT = 0.5
"""By how many standard deviations of one channel a layer's explained share may be greater than it seems: the mean over
channels, which resemble each other, is about twice as sure as one of them."""
FEATURES = "features"
"""The layer that stands for the features before the head, where a model has no BatchNorm."""
PLAIN_SHARE, OF_CLASSES = 0.25, 10
"""Layers whose samples' means classes surely explain by less than this can be corrected before the prior is known: of a
model with so many classes or fewer. What a mix of classes moves a batch's mean by falls with their number."""


class ClassMoments(NamedTuple):
    """A value per sample and channel, seen through its classes."""

    means: Float[Tensor, "*B K C"]
    """Means of every class, drawn towards the common mean as far as they are noise."""
    within: Float[Tensor, "*B C"]
    """Variance of a sample around the mean of its class."""
    scarcity: Float[Tensor, " K"]
    """1 / N_k: how uncertain the mean of a class is, in units of `within`."""


def class_moments(values: Float[Tensor, "*B N C"], labels: Int[Tensor, " N"], num_classes: int) -> ClassMoments:
    """Class means with empirical-Bayes shrinkage (Efron and Morris, 1973), per channel; the common mean where a class
    has no samples."""
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


def explained_share(moments: ClassMoments, doubt: float = 0.0) -> Float[Tensor, "*B"]:
    """Share of the values' variance that lies between the classes, in [0, 1], mean over the channels; as large as it
    may be where the classes' variance is greater by `doubt` standard deviations of its estimate.

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
    """Variance of what is expected, since the reference set is finite and the class mix itself is an estimate."""


class Shift(NamedTuple):
    """What is believed of a residual."""

    size: Float[Tensor, "*B C"]
    trust: Float[Tensor, "*B 1"]
    """The share of the residual that was kept: 0 where chance and classes explain it, near 1 where they cannot."""


def expected_under(
    prior: Float[Tensor, " K"], moments: ClassMoments, samples_of_prior: int | float = math.inf
) -> Expected:
    """Σ_k q_k m_k; a sample varies by `within` and by the class means' variance under q, what is expected by
    `within · Σ q_k² / N_k`, and by that variance over the samples that the prior is known from.

    A prior that is off moves batch after batch the same way: without its share, samples that are remembered would make
    sure of what is only its error.
    """
    mean = prior @ moments.means
    between = prior @ (moments.means - mean.unsqueeze(-2)).square()
    few_labelled = moments.within * (prior.square() * moments.scarcity).sum()
    return Expected(mean, moments.within + between, positive(few_labelled + between / samples_of_prior))


def concentration(prior: Float[Tensor, " K"], evenness: float) -> Float[Tensor, ""]:
    """How far a class mix is from the source's towards a single class: 0 where it is as even, 1 where it is one class.
    `evenness` is Σ_k μ0_k² of the source prior."""
    return ((prior.square().sum() - evenness) / max(1 - evenness, torch.finfo(prior.dtype).eps)).clamp(min=0)


def distance_of_classes(expected: Expected, moments: ClassMoments) -> Float[Tensor, "*B C"]:
    """Squared distance of a class's mean to what is expected, in units of a sample's variance; the mean over classes,
    of which any may come next."""
    apart = (moments.means - expected.mean.unsqueeze(-2)).square().mean(-2)
    return apart / positive(expected.spread)


def believed(residual: Residual, expected: Expected, doubt: float) -> Shift:
    """A residual, shrunk towards 0 by its own evidence (James and Stein, 1961): the mean ratio of its squares to their
    variance is 1 by chance, and of a ratio R the share 1 − doubt / R is kept, of `doubt` 0 everything."""
    chance = torch.addcdiv(expected.uncertainty, expected.spread, residual.samples)
    trust = torch.rsub(squared_ratio(residual.size, chance).reciprocal(), 1, alpha=doubt).clamp(min=0)
    return Shift(trust * residual.size, trust)


class LayerGroup(NamedTuple):
    """Layers with their channels side by side."""

    channels: dict[str, int]
    """How many each layer has."""
    moments: ClassMoments
    """`[2, K, C]` and `[2, C]`."""
    layer_of_channel: Tensor
    """`[C]`: places of the layers."""
    recognises: bool
    """Whether its layers say what condition a batch came in: plain ones do. In others what is read changes with the
    classes, and each class mix would be a condition of its own."""

    def place(self, layer: str) -> tuple[int, int]:
        """Which of its layers this is, and its first channel."""
        number = list(self.channels).index(layer)
        return number, sum(list(self.channels.values())[:number])

    def by_layer(self, values: Tensor) -> tuple[Tensor, ...]:
        """Values `[..., C]` of each layer."""
        return torch.split(values, list(self.channels.values()), -1)


def measured_once(compute: Callable[[Deployment], Constant]) -> Callable[[Deployment], Constant]:
    """The function, of which a deployment keeps what it gave."""
    return wraps(compute)(lambda deployment: deployment.constant(compute))


@measured_once
def reference_moments(deployment: Deployment) -> dict[str, ClassMoments]:
    """Moments of every BatchNorm layer on the reference set under the deployed model, or else of the features."""
    return {layer: classes for layer, (classes, _) in _reference_layers(deployment).items()}


@measured_once
def sample_spreads(deployment: Deployment) -> dict[str, Tensor]:
    """`[2, C]`: how much the reference set's samples differ in mean and variance, in layers in which these say
    little of their classes: a sample is of one class, however many there are. None where a sample is one number a
    channel, as in a perceptron: that cannot tell what it shows from what it came under."""
    shares, layers = _explained_shares(deployment), _reference_layers(deployment)
    plain = {layer: layers[layer][1] for layer, share in shares.items() if share < PLAIN_SHARE and layer != FEATURES}
    return {layer: apart for layer, apart in plain.items() if bool(apart[1].any())}


@measured_once
def _reference_layers(deployment: Deployment) -> dict[str, tuple[ClassMoments, Tensor]]:
    network, reference = deployment.network, deployment.reference
    parts, at_once = [], max(1, 2**22 // max(1, reference.inputs[0].numel()))  # a large set of large images must fit
    for inputs in torch.split(reference.inputs, at_once):
        watching = Watching(sample_moments)
        features = network.summarise(network.represent(deployment.parameters, inputs, watching))
        # Layers that see other rows than samples, such as tokens, cannot be told their classes.
        seen = {layer: moments for layer, moments in watching.seen.items() if moments.shape[1] == len(inputs)}
        parts.append(seen or {FEATURES: sample_moments(features)})
    whole = {layer: torch.cat([part[layer] for part in parts], 1) for layer in parts[0]}
    labels, classes = reference.labels, deployment.num_classes
    return {layer: (class_moments(values, labels, classes), spread(values)) for layer, values in whole.items()}


@measured_once
def plain_layers(deployment: Deployment) -> frozenset[str]:
    """Layers that tell classes apart so little that a wrong prior does no harm there. Features do not count: they are
    what the head reads classes from."""
    limit = PLAIN_SHARE * max(1.0, deployment.num_classes / OF_CLASSES)
    return frozenset(
        layer for layer, share in _explained_shares(deployment).items() if share < limit and layer != FEATURES
    )


@measured_once
def _explained_shares(deployment: Deployment) -> dict[str, float]:
    moments = reference_moments(deployment)
    shares = torch.stack([explained_share(both, SHARE_DOUBT)[0] for both in moments.values()]).tolist()
    return dict(zip(moments, shares, strict=True))


@measured_once
def source_evenness(deployment: Deployment) -> float:
    """Σ_k μ0_k²: 1 / K where the source has every class as often."""
    return float(deployment.source_prior.square().sum())


@measured_once
def layer_groups(deployment: Deployment) -> tuple[LayerGroup, ...]:
    """Layers that recognise conditions, and the others; fewer groups where there are none of a kind."""
    moments, recognising = reference_moments(deployment), plain_layers(deployment)
    kinds = {
        kind: {layer: moments[layer] for layer in moments if (layer in recognising) == kind} for kind in (True, False)
    }
    return tuple(_grouped(some, recognises) for recognises, some in kinds.items() if some)


def measure(deployment: Deployment) -> None:
    """All that follows from the deployment, before the first timestep: it waits for the device."""
    layer_groups(deployment)
    source_evenness(deployment)


def _grouped(moments: dict[str, ClassMoments], recognises: bool) -> LayerGroup:
    channels = {layer: both.within.shape[-1] for layer, both in moments.items()}
    means, within = (torch.cat([both[part] for both in moments.values()], -1) for part in (0, 1))
    scarcity = next(iter(moments.values())).scarcity
    places = torch.arange(len(channels)).repeat_interleave(torch.tensor(list(channels.values())))
    return LayerGroup(channels, ClassMoments(means, within, scarcity), places.to(within.device), recognises)
