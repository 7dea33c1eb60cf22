"""Universal domain adaptation: which target samples belong to known classes.

Axes: n samples, K classes, d features.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedade.maths.signals.directions import directions

SHARPNESS = 0.05
"""Temperature of all similarities (DANCE)."""


def middle_entropy(num_classes: int) -> float:
    """ρ = ½ ln K: below it a sample seems known, above it unknown (DANCE, Saito et al., 2020)."""
    return math.log(num_classes) / 2


def entropy_separation(
    entropies: Float[Tensor, " n"], middle: float, margin: float, chosen: Bool[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Mean of -|H - ρ| over those chosen samples that lie further than the margin from ρ (DANCE, Eq. 6)."""
    distance = (entropies - middle).abs()
    return -torch.where((distance > margin) & chosen, distance, 0.0).mean()


def prototype_similarities(features: Float[Tensor, "n d"], prototypes: Float[Tensor, "K d"]) -> Float[Tensor, "n K"]:
    """s_k = softmax(cos(h, c_k) / 0.05); a class without a prototype (all 0) takes no share."""
    logits = directions(features) @ directions(prototypes).T / SHARPNESS
    known = (prototypes != 0).any(-1)
    return torch.where(known, logits, torch.finfo(logits.dtype).min).softmax(-1)
