"""Aligning features with class anchors. Axes: n samples, d features, K classes."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedade.maths.losses.pseudo_labels import weighted_cross_entropy
from fedade.methods.fed_ccfa.clustering import unit_vectors

_NO_CHANCE = -1e4
"""Logit of a class without an anchor; finite, so that gradients are when no class has one."""


def alignment_loss(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    trust: Float[Tensor, " n"],
    anchors: Float[Tensor, "K d"],
    known: Bool[Tensor, " K"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of cos(feature, anchor) / temperature over the known anchors (FedCCFA, Chen et al., 2024)."""
    cosines = unit_vectors(features) @ unit_vectors(anchors).mT
    logits = torch.where(known, cosines / temperature, _NO_CHANCE)
    return weighted_cross_entropy(logits, labels, trust * known.to(trust.dtype)[labels])
