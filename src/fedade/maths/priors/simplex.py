"""Distributions over classes as points of the probability simplex. Axes: *C any leading axes, K classes."""

import torch
from jaxtyping import Float
from torch import Tensor


def project_to_simplex(vector: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """Nearest distribution in Euclidean distance, by sorting (Held, Wolfe and Crowder, 1974)."""
    # A common shift leaves the projection unchanged; with the maximum at 0 no precision is lost to it.
    shifted = vector - vector.amax(-1, keepdim=True)
    descending = shifted.sort(-1, descending=True).values
    ranks = torch.arange(1, vector.shape[-1] + 1, dtype=vector.dtype, device=vector.device)
    thresholds = (descending.cumsum(-1) - 1) / ranks
    support_size = (descending > thresholds).sum(-1, keepdim=True)
    kept = (shifted - thresholds.gather(-1, support_size - 1)).clamp_min(0)
    return kept / kept.sum(-1, keepdim=True)


def normalise(masses: Float[Tensor, "*C K"], fallback: Float[Tensor, " K"]) -> Float[Tensor, "*C K"]:
    """Non-negative masses scaled to sum to 1; where all are 0, the fallback."""
    total = masses.sum(-1, keepdim=True)
    return torch.where(total > 0, masses / torch.where(total > 0, total, 1), fallback)


def mix_with_uniform(prior: Float[Tensor, "*C K"], weight: float) -> Float[Tensor, "*C K"]:
    """(1 - weight) prior + weight · uniform, so that no class has probability 0."""
    return (1 - weight) * prior + weight / prior.shape[-1]
