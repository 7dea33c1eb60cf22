"""Strategies of BatchNorm layers that keep statistics between batches, and the layers that they are about.

Of these, balanced BN keeps statistics class by class: every class has a mean and a variance per channel, which follow
the samples that are predicted to be of it, and a layer normalises with all classes in equal parts, so that no class mix
moves it (TRIBE, AAAI 2024; also in UniTTA and pFedBBN).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import ByMoments, InputMoments, Statistics, batch_statistics, blended
from fedade.parts.norm_layers import named_statistics
from fedade.parts.optimisers import AdamOptimiser

EPSILON = 1e-5
"""What BatchNorm adds to a variance."""

FEW_CLASSES = 100
"""Below as many classes the constants published for CIFAR-10 hold, from there on those for CIFAR-100."""


def batch_norm_layers(deployment: Deployment) -> dict[str, Statistics]:
    """Deployed statistics of the body's BatchNorm layers, by layer, in the order in which the network defines them.
    Strategies are told of no others: heads normalise with what was deployed."""
    parameters = deployment.parameters
    return {
        layer: Statistics(parameters[f"{layer}.running_mean"], parameters[f"{layer}.running_var"])
        for layer in (f"body.{name}" for name, _ in deployment.network.body.named_modules())
        if f"{layer}.running_mean" in parameters
    }


def own_statistics(deployment: Deployment) -> dict[str, Tensor]:
    """The deployed statistics under those names: what a client's own begin with."""
    return named_statistics(batch_norm_layers(deployment))


def sample_statistics(inputs: Tensor | InputMoments) -> Statistics:
    """Mean and biased variance of every sample and channel, `[n, C]`, over its plane."""
    if isinstance(inputs, InputMoments):
        return Statistics(inputs.mean, inputs.variance)
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    flat = exact.flatten(2) if exact.ndim > 2 else exact.unsqueeze(-1)
    mean = flat.mean(-1)
    return Statistics(mean, (flat - mean.unsqueeze(-1)).square().mean(-1))


def weighted_statistics(inputs: Tensor | InputMoments, weights: Tensor) -> Statistics:
    """Statistics of a batch in which each sample counts so much."""
    means, variances = sample_statistics(inputs)
    shares = (weights / weights.sum().clamp_min(torch.finfo(weights.dtype).eps)).unsqueeze(-1)
    mean = (shares * means).sum(0)
    return Statistics(mean, (shares * (variances + (means - mean).square())).sum(0))


@dataclass(frozen=True)
class Following(ByMoments):
    """The model's statistics after a step towards those of the batch, of which only some samples may count (RoTTA)."""

    of_samples = True
    momentum: float
    weights: Tensor
    found: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        batch = weighted_statistics(inputs, self.weights)
        moved = (blended(old, new, self.momentum) for old, new in zip(deployed, batch, strict=True))
        self.found[layer] = Statistics(*moved)
        return self.found[layer]


@dataclass(frozen=True)
class InstanceAware(ByMoments):
    """Every sample's own statistics as far as they lie outside what chance allows around common ones (IABN, NOTE).
    Common are the model's, or those of the batch (`of_batch`), unbiased and with gradients."""

    of_samples = True
    tolerance: float
    """In standard errors of a mean and of a variance of independent pixels."""
    of_batch: bool = False
    seen: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        own = sample_statistics(inputs)
        pixels = inputs.pixels if isinstance(inputs, InputMoments) else inputs[0, 0].numel()
        common = deployed
        if self.of_batch:
            samples = len(own.mean) * pixels
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
    return difference - difference.clamp(-allowed, allowed)


@dataclass(frozen=True)
class Renormalised(ByMoments):
    """Running means and deviations as values, the batch's own as the way of gradients (test-time batch renorm, DELTA).
    What is stored as a variance is a squared deviation, BatchNorm's small constant included."""

    known: Mapping[str, Statistics]
    starts_with_batch: Tensor
    """Whether nothing is known yet, so that the batch's own statistics are taken instead."""
    seen: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
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


class ClassRows(NamedTuple):
    """Means and variances by class, `[K, C]`; further leading axes are further rows."""

    means: Tensor
    variances: Tensor


class RowPace(NamedTuple):
    """How fast rows follow samples."""

    rate: float
    """η: weight of one sample in its class's row, until those of a batch weigh 1 together."""
    shared: float
    """γ: share of the seen classes' mean change that moves all classes."""


class BalancedRows(BaseModel):
    """Settings of methods that keep statistics class by class."""

    row_rate: float | None = Field(None, gt=0, le=1)
    """η: weight of a sample in its class's statistics; None: 0.01, or 0.0005 K of more than 20 classes."""
    row_sharing: float | None = Field(None, ge=0, le=1)
    """γ: share of a change that moves all classes; None: 0, or 0.1 from 100 classes on."""

    def pace(self, num_classes: int) -> RowPace:
        """The constants given, and where none are those that were published for so many classes."""
        return RowPace(
            max(0.0005 * num_classes, 0.01) if self.row_rate is None else self.row_rate,
            (0.0 if num_classes < FEW_CLASSES else 0.1) if self.row_sharing is None else self.row_sharing,
        )


class BalancedLearning(BalancedRows):
    """Settings of methods whose scales learn a teacher's certain answers, held near the deployed model."""

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    reliable_entropy: float | None = Field(None, gt=0)
    """H_0: entropy below which an answer is certain, as a share of ln K; None: 0.05, or 0.2 from 100 classes on."""
    anchoring: float = Field(0.5, ge=0)
    """λ: weight of the squared distance to the logits of the deployed scales."""

    def certain_below(self, num_classes: int) -> float:
        """The entropy below which an answer counts, in nats."""
        published = 0.05 if num_classes < FEW_CLASSES else 0.2
        return (published if self.reliable_entropy is None else self.reliable_entropy) * math.log(num_classes)


def deployed_rows(deployment: Deployment) -> dict[str, ClassRows]:
    """All classes with the deployed statistics of every layer."""
    classes = deployment.num_classes
    return {
        layer: ClassRows(mean.expand(classes, -1).clone(), variance.expand(classes, -1).clone())
        for layer, (mean, variance) in batch_norm_layers(deployment).items()
    }


def mixture(rows: ClassRows) -> Statistics:
    """Mean and variance of all classes in equal parts: the mean variance, and the (unbiased) variance of the means."""
    mean, freedom = rows.means.mean(-2), max(1, rows.means.shape[-2] - 1)
    # `var` of another than the last axis takes ten times as long on a CPU.
    between = (rows.means - mean.unsqueeze(-2)).square().sum(-2) / freedom
    return Statistics(mean, rows.variances.mean(-2) + between)


def mixtures(rows: Mapping[str, ClassRows]) -> dict[str, Tensor]:
    """The mixtures of all layers, by the names of the statistics that they replace in a model."""
    if not rows:
        return {}
    together = mixture(ClassRows(*(torch.cat(values, -1) for values in zip(*rows.values(), strict=True))))
    widths = [layer.means.shape[-1] for layer in rows.values()]
    apart = zip(*(torch.split(value, widths, -1) for value in together), strict=True)
    return named_statistics({layer: Statistics(*own) for layer, own in zip(rows, apart, strict=True)})


def followed(rows: ClassRows, inputs: Tensor | InputMoments, labels: Tensor, pace: RowPace) -> ClassRows:
    """Rows after a batch with these classes, `[n]`; gradients run through."""
    num_rows = len(rows.means)
    chosen = (labels.unsqueeze(-1) == torch.arange(num_rows, device=labels.device)).to(rows.means.dtype)
    counts = chosen.sum(0).unsqueeze(-1)
    seen, weights = counts > 0, 1 / counts.clamp_min(1 / pace.rate)
    means, variances = sample_statistics(inputs)
    apart = means - rows.means[labels]
    change = weights * (chosen.T @ apart)
    squares = weights * (chosen.T @ (variances + apart.square()))
    spread = squares - weights * counts * rows.variances - change.square()
    own = 1 - pace.shared
    after = ClassRows(
        rows.means + torch.where(seen, own * change, 0.0), rows.variances + torch.where(seen, own * spread, 0.0)
    )
    if not pace.shared:
        return after

    def over_seen(values: Tensor) -> Tensor:
        return torch.where(seen, values, 0.0).sum(0) / seen.sum().clamp_min(1)

    common = over_seen(squares - change.square()) - over_seen(weights * counts) * after.variances
    return ClassRows(after.means + pace.shared * over_seen(change), after.variances + pace.shared * common)


@dataclass(frozen=True)
class ClassBalanced(ByMoments):
    """Normalises with the mixture of all classes, after the rows have followed a batch of these classes."""

    of_samples = True
    rows: Mapping[str, ClassRows]
    pace: RowPace
    labels: Tensor
    found: dict[str, ClassRows] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        self.found[layer] = followed(self.rows[layer], inputs, self.labels, self.pace)
        return mixture(self.found[layer])
