"""Universal domain adaptation: which target samples belong to known classes.

Axes: n samples, m neighbours, K classes, d features.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedade.maths.losses.entropy import entropy_from_logits
from fedade.maths.signals.directions import directions

SHARPNESS = 0.05
"""Temperature of all similarities (DANCE)."""


def middle_entropy(num_classes: int) -> float:
    """ρ = ½ ln K: below it a sample seems known, above it unknown (DANCE, Saito et al., 2020)."""
    return math.log(num_classes) / 2


def entropy_separation(
    entropies: Float[Tensor, " n"], middle: float, margin: float, chosen: Bool[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    """Mean of -|H - ρ| over samples that lie further than the margin from ρ (DANCE, Eq. 6), or the chosen of them."""
    distance = (entropies - middle).abs()
    far = distance > margin if chosen is None else (distance > margin) & chosen
    return -torch.where(far, distance, 0.0).mean()


def neighbourhood_entropy(
    features: Float[Tensor, "n d"], neighbours: Float[Tensor, "m d"], allowed: Bool[Tensor, "n m"]
) -> Float[Tensor, ""]:
    """Mean entropy of each sample's similarities to its neighbours (DANCE, Eq. 4); 0 where it has none."""
    logits = directions(features) @ directions(neighbours).T / SHARPNESS
    # Far below any similarity, yet finite: a sample without neighbours must not give NaN.
    entropies = entropy_from_logits(torch.where(allowed, logits, -1e4))
    return torch.where(allowed.any(-1), entropies, 0.0).mean()


def prototype_similarities(features: Float[Tensor, "n d"], prototypes: Float[Tensor, "K d"]) -> Float[Tensor, "n K"]:
    """s_k = softmax(cos(h, c_k) / 0.05); a class without a prototype (all 0) takes no share."""
    logits = directions(features) @ directions(prototypes).T / SHARPNESS
    known = (prototypes != 0).any(-1)
    return torch.where(known, logits, torch.finfo(logits.dtype).min).softmax(-1)


def source_transferability(
    logits: Float[Tensor, "n K"], domain_probability: Float[Tensor, " n"], class_temperature: float
) -> Float[Tensor, " n"]:
    """w_s = H(softmax(logits / τ)) / ln K - d'(x) (UAN, You et al., 2019, Eq. 7); a target sample's is -w_s."""
    return entropy_from_logits(logits / class_temperature) / math.log(max(2, logits.shape[-1])) - domain_probability


def balanced_weights(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Rescaled to [0, 1], then to mean 1 (UAN's released code); 1 for all where all are equal."""
    spread = values.max() - values.min()
    scaled = (values - values.min()) / torch.where(spread > 0, spread, 1)
    mean = scaled.mean()
    return torch.where(mean > 0, scaled / torch.where(mean > 0, mean, 1), torch.ones_like(values))
