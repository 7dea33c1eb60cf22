"""Strategies of BatchNorm layers that keep statistics between batches, and the layers that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Statistics, batch_statistics
from fedade.core.split import Parameters
from fedade.parts.norm_layers import named_statistics

EPSILON = 1e-5
"""What BatchNorm adds to a variance."""


def batch_norm_layers(deployment: Deployment) -> dict[str, Statistics]:
    """Deployed statistics of the body's BatchNorm layers, by layer, in the order in which the network defines them.

    Strategies are told of no others: heads normalise with what was deployed.
    """
    parameters = deployment.parameters
    return {
        layer: Statistics(parameters[f"{layer}.running_mean"], parameters[f"{layer}.running_var"])
        for layer in (f"body.{name}" for name, _ in deployment.network.body.named_modules())
        if f"{layer}.running_mean" in parameters
    }


def own_statistics(deployment: Deployment) -> dict[str, Tensor]:
    """The deployed statistics under those names: what a client's own begin with."""
    return named_statistics(batch_norm_layers(deployment))


def detached(tensors: Parameters) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in tensors.items()}


def sample_statistics(inputs: Tensor) -> Statistics:
    """Mean and biased variance of every sample and channel, `[n, C]`, over its plane."""
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    flat = exact.flatten(2) if exact.ndim > 2 else exact.unsqueeze(-1)
    mean = flat.mean(-1)
    return Statistics(mean, (flat - mean.unsqueeze(-1)).square().mean(-1))


def weighted_statistics(inputs: Tensor, weights: Tensor) -> Statistics:
    """Statistics of a batch in which each sample counts so much."""
    means, variances = sample_statistics(inputs)
    shares = (weights / weights.sum().clamp_min(torch.finfo(weights.dtype).eps)).unsqueeze(-1)
    mean = (shares * means).sum(0)
    return Statistics(mean, (shares * (variances + (means - mean).square())).sum(0))


@dataclass(frozen=True)
class Following:
    """The model's statistics after a step towards those of the batch, of which only some samples may count (RoTTA)."""

    momentum: float
    weights: Tensor
    found: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        batch = weighted_statistics(inputs, self.weights)
        moved = ((1 - self.momentum) * old + self.momentum * new for old, new in zip(deployed, batch, strict=True))
        self.found[layer] = Statistics(*moved)
        return self.found[layer]


@dataclass(frozen=True)
class InstanceAware:
    """Every sample's own statistics as far as they lie outside what chance allows around common ones (IABN, NOTE).

    Common are the model's, or those of the batch (`of_batch`), unbiased and with gradients.
    """

    tolerance: float
    """In standard errors of a mean and of a variance of independent pixels."""
    of_batch: bool = False
    seen: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        own, pixels = sample_statistics(inputs), inputs[0, 0].numel()
        common = deployed
        if self.of_batch:
            samples = len(inputs) * pixels
            batch = weighted_statistics(inputs, torch.ones_like(own.mean[:, 0]))
            common = Statistics(batch.mean, batch.variance * samples / max(1, samples - 1))
        self.seen[layer] = common
        if pixels == 1:
            return common
        spread = common.variance + EPSILON
        mean = _beyond(own.mean - common.mean, self.tolerance * (spread / pixels).sqrt())
        unbiased = own.variance * pixels / (pixels - 1)
        variance = _beyond(unbiased - common.variance, self.tolerance * spread * (2 / (pixels - 1)) ** 0.5)
        return Statistics(common.mean + mean, (common.variance + variance).clamp_min(0))


def _beyond(difference: Tensor, allowed: Tensor) -> Tensor:
    """What of a difference lies outside what is allowed."""
    return difference.sign() * (difference.abs() - allowed).clamp_min(0)


@dataclass(frozen=True)
class Renormalised:
    """Running means and deviations as values, the batch's own as the way of gradients (test-time batch renorm, DELTA).

    What is stored as a variance is a squared deviation, BatchNorm's small constant included.
    """

    known: Mapping[str, Statistics]
    starts_with_batch: Tensor
    """Whether nothing is known yet, so that the batch's own statistics are taken instead."""
    seen: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        mean, variance = batch_statistics(inputs)
        deviation = (variance + EPSILON).sqrt()
        self.seen[layer] = Statistics(mean.detach(), deviation.detach().square())
        past = self.known[layer]
        past_mean = torch.where(self.starts_with_batch, mean.detach(), past.mean)
        past_deviation = torch.where(self.starts_with_batch, deviation.detach(), past.variance.sqrt())
        # ((x - mean) / deviation) r + d, with constants r and d, as a mean and a variance
        width = deviation * (past_deviation / deviation.detach())
        shift = (mean.detach() - past_mean) / past_deviation
        return Statistics(mean - shift * width, (width.square() - EPSILON).clamp_min(0))
