"""Descending the reweighting vector p of a frozen classifier: ROGD (Wu et al., 2021).

The reweighted posterior of a sample is g = a∘p / s with a = p_θ(x) / μ0 and s = Σ_k a_k p_k. Its expected error under a
class prior q is Σ_j q_j (1 - mean over reference samples of class j of g_j).

Axes: n reference samples, K classes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.maths.losses.risks import one_hot
from fedade.maths.priors.simplex import project_to_simplex


def class_error_slopes(
    probabilities: Float[Tensor, "n K"],
    labels: Int[Tensor, " n"],
    weights: Float[Tensor, " K"],
    source_prior: Float[Tensor, " K"],
) -> Float[Tensor, "K K"]:
    """Row j: gradient by p of class j's error, -mean_{y=j} [a_j 1{i=j} / s - a_i a_j p_j / s²].

    The gradient of the expected error under a prior q is q @ slopes. A class without samples has slope 0.
    """
    membership = one_hot(labels, len(weights), probabilities.dtype)
    odds = probabilities / source_prior.clamp_min(torch.finfo(source_prior.dtype).eps)
    odds = odds / (odds @ weights).unsqueeze(-1)
    own = (membership * odds).sum(-1, keepdim=True)
    own_weight = (membership @ weights).unsqueeze(-1)
    per_sample = odds * own * own_weight - membership * own
    return (membership / membership.sum(0).clamp_min(1)).mT @ per_sample


def steepest_slope(
    probabilities: Float[Tensor, "n K"],
    labels: Int[Tensor, " n"],
    points: Float[Tensor, "P K"],
    source_prior: Float[Tensor, " K"],
) -> Float[Tensor, ""]:
    """L: the largest norm of the expected error's gradient at any of the points, under any class prior."""
    # The gradient is linear in the prior, so a norm is largest where the prior is a single class.
    norms = [class_error_slopes(probabilities, labels, point, source_prior).norm(dim=-1) for point in points]
    return torch.stack(norms).max()


def project_above(vector: Float[Tensor, " K"], floor: float) -> Float[Tensor, " K"]:
    """Nearest distribution without an entry below the floor, which must be less than 1/K."""
    rest = 1 - floor * len(vector)
    return floor + rest * project_to_simplex((vector - floor) / rest)
