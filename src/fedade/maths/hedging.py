"""Mixtures of experts whose weights follow exponentiated losses. Axes: M experts, n samples, K classes.

Weights are kept as logarithms: products of many small factors would vanish, and an expert that does not exist yet is
one of weight 0, whose logarithm is -inf.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_SMALLEST_CHANCE = 1e-6


def mixture(
    probabilities: Float[Tensor, "M n K"], log_weights: Float[Tensor, " M"], chosen: Bool[Tensor, " M"] | None = None
) -> Float[Tensor, "n K"]:
    """Σ w_j p_j / Σ w_j over the chosen experts (all of them by default)."""
    if chosen is not None:
        log_weights = torch.where(chosen, log_weights, -torch.inf)
    return (log_weights.softmax(-1)[:, None, None] * probabilities).sum(0)


def draw_experts(log_weights: Float[Tensor, " M"], uniforms: Float[Tensor, " D"]) -> Bool[Tensor, " M"]:
    """Experts hit by draws with replacement in proportion to their weights; one uniform number per draw."""
    # Bounds below the last expert's: a sum that rounding left under 1 must not lead beyond it.
    bounds = log_weights.softmax(-1).cumsum(-1)[:-1]
    hits = (uniforms[:, None] >= bounds).sum(-1, keepdim=True)
    return (hits == torch.arange(len(log_weights), device=log_weights.device)).any(0)


def hedge(log_weights: Float[Tensor, " M"], losses: Float[Tensor, " M"], rate: float) -> Float[Tensor, " M"]:
    """w · exp(-rate · loss) (Freund and Schapire, 1997)."""
    return log_weights - rate * losses


def hedge_drawn(
    log_weights: Float[Tensor, " M"],
    losses: Float[Tensor, " M"],
    drawn: Bool[Tensor, " M"],
    num_draws: int,
    rate: float,
) -> Float[Tensor, " M"]:
    """Hedge on the experts that were drawn, with losses divided by their chance to be: unbiased for all. The chance is
    1 - (1 - w_j / Σw)^draws (Ghari and Shen, 2024)."""
    chances = 1 - (1 - log_weights.softmax(-1)) ** num_draws
    return torch.where(drawn, hedge(log_weights, losses / chances.clamp_min(_SMALLEST_CHANCE), rate), log_weights)
