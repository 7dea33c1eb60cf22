"""Statistics of BatchNorm layers class by class, from which statistics follow that no class mix moves (balanced BN).

Every class has a mean and a variance per channel, which follow the samples that are predicted to be of it. A layer
normalises with the mixture of all classes in equal parts (TRIBE, AAAI 2024; also in UniTTA and pFedBBN).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Statistics
from fedade.parts.optimisers import AdamOptimiser
from fedade.parts.running_norms import batch_norm_layers, sample_statistics

FEW_CLASSES = 100
"""Below as many classes the constants published for CIFAR-10 hold, from there on those for CIFAR-100."""


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
    return Statistics(rows.means.mean(-2), rows.variances.mean(-2) + rows.means.var(-2))


def followed(rows: ClassRows, inputs: Tensor, labels: Tensor, pace: RowPace) -> ClassRows:
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
class ClassBalanced:
    """Normalises with the mixture of all classes, after the rows have followed the batch if its classes are given."""

    rows: Mapping[str, ClassRows]
    pace: RowPace
    labels: Tensor | None = None
    found: dict[str, ClassRows] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        rows = self.rows[layer]
        if self.labels is not None:
            rows = self.found[layer] = followed(rows, inputs, self.labels, self.pace)
        return mixture(rows)
