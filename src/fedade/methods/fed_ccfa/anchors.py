"""Aligning features with class anchors. Axes: n samples, d features, K classes."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedade.maths.losses.pseudo_labels import one_hot, weighted_cross_entropy

_NO_CHANCE = -1e4
"""Logit of a class without an anchor; finite, so that gradients are when no class has one."""


def class_means(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], trust: Float[Tensor, " n"], num_classes: int
) -> Float[Tensor, "K d"]:
    """Prototype of each class: the trusted samples' mean feature; 0 for a class without any."""
    membership = one_hot(labels, num_classes, features.dtype) * trust.unsqueeze(-1)
    totals = membership.sum(0).unsqueeze(-1)
    return membership.mT @ features / torch.where(totals > 0, totals, 1)


def alignment_loss(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    trust: Float[Tensor, " n"],
    anchors: Float[Tensor, "K d"],
    known: Bool[Tensor, " K"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of cos(feature, anchor) / temperature over the known anchors (FedCCFA, Chen et al., 2024)."""
    cosines = _directions(features) @ _directions(anchors).mT
    logits = torch.where(known, cosines / temperature, _NO_CHANCE)
    return weighted_cross_entropy(logits, labels, trust * known.to(trust.dtype)[labels])


def _directions(vectors: Tensor) -> Tensor:
    # A zero vector is divided by 1: dividing by a small number would blow its gradient up.
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)
