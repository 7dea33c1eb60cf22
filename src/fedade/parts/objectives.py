"""Losses that a client can descend: label-free ones, and that of given labels, an oracle's or its model's own."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedade.maths.losses import class_weights, entropy, entropy_from_logits, estimated_risk, weighted_cross_entropy
from fedade.parts.optimisers import WHOLE, Minibatch

Examples = Literal["reference", "stream"]
ObjectiveName = Literal["bbse", "entropy", "bbse+entropy", "infomax", "pseudo", "posterior-entropy"]

PSEUDO_CONFIDENCE = 0.9

LabelSource = Literal["unsup", "oracle"]
"""Whether a method that was made for labelled streams runs as its label-free port or as the original."""


class Material(NamedTuple):
    """What a loss is computed from."""

    logits: Callable[[Examples, Minibatch], Tensor]
    """Logits of the given rows of a set of examples."""
    reference_labels: Tensor
    prior: Tensor
    """Estimated class distribution of the stream's batch."""
    source_prior: Tensor
    drawn_by_prior: bool = False
    """Whether reference rows come as often as the prior weighs them, and so need no weight any more."""


class Objective(NamedTuple):
    """A loss over minibatches."""

    examples: tuple[Examples, ...]
    """The sets it reads; minibatches are rows of the first."""
    loss: Callable[[Material, Minibatch], Tensor]
    """Loss on the given rows of its first set."""


def bbse(material: Material, rows: Minibatch) -> Tensor:
    """The paper's estimated risk F̂ (eq:estimated_risk): class-wise reference losses, weighted by the prior."""
    labels = material.reference_labels
    weights = class_weights(material.prior, labels)
    if material.drawn_by_prior:
        weights = weights.mean().expand_as(weights)  # 1, less the prior of classes without a reference sample
    return estimated_risk(material.logits("reference", rows), labels[rows], weights[rows])


def _entropy(material: Material, rows: Minibatch) -> Tensor:
    """Mean entropy of the predictions on the stream: what the released code minimises (TENT's loss)."""
    return entropy_from_logits(material.logits("stream", rows)).mean()


def _infomax(material: Material, rows: Minibatch) -> Tensor:
    """Mean entropy minus the entropy of the mean: confident and varied predictions (Krause et al., 2010)."""
    logits = material.logits("stream", rows)
    return entropy_from_logits(logits).mean() - entropy(logits.softmax(-1).mean(-2))


def _posterior_entropy(material: Material, rows: Minibatch) -> Tensor:
    """Mean entropy of the predictions after they are corrected by the prior, p ∘ q / μ0. The classes of the batch are
    accounted for by the prior, so that the network need not learn them."""
    logits = material.logits("stream", rows)
    least = torch.finfo(logits.dtype).tiny
    log_ratio = material.prior.clamp(min=least).log() - material.source_prior.clamp(min=least).log()
    return entropy_from_logits(logits + log_ratio).mean()


def _pseudo(material: Material, rows: Minibatch) -> Tensor:
    """Cross-entropy to the model's own confident predictions (Lee, 2013)."""
    logits = material.logits("stream", rows)
    confidence, labels = logits.detach().softmax(-1).max(-1)
    losses = cross_entropy(logits, labels, reduction="none")
    trusted = (confidence >= PSEUDO_CONFIDENCE).to(losses.dtype)
    return (trusted * losses).sum() / trusted.sum().clamp(min=1)


def labelled_samples(labels: Tensor, weights: Tensor) -> Objective:
    """Cross-entropy to labels of the stream's samples, each with a weight."""

    def loss(material: Material, rows: Minibatch) -> Tensor:
        return weighted_cross_entropy(material.logits("stream", rows), labels[rows], weights[rows])

    return Objective(("stream",), loss)


OBJECTIVES: Mapping[ObjectiveName, Objective] = {
    "bbse": Objective(("reference",), bbse),
    "entropy": Objective(("stream",), _entropy),
    # Reference losses keep the classes apart while entropy sees the new inputs.
    "bbse+entropy": Objective(
        ("reference", "stream"), lambda material, rows: bbse(material, rows) + _entropy(material, WHOLE)
    ),
    "infomax": Objective(("stream",), _infomax),
    "pseudo": Objective(("stream",), _pseudo),
    "posterior-entropy": Objective(("stream",), _posterior_entropy),
}
