"""Empirical dynamic regret, paper Sec. 5.2. Axes: *C any client axes, t timesteps at which losses were measured."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def dynamic_regret(
    losses: Float[Tensor, "*C t"], comparator_losses: Float[Tensor, "*C t"], weights: Float[Tensor, " t"]
) -> Float[Tensor, "*C"]:
    """Reg_T = Σ_t [F_t(θ_t) − F_t(θ*_t)]; a measured timestep counts for as many as its weight says."""
    return ((losses - comparator_losses) * weights).sum(-1)


def interval_regret(
    losses: Float[Tensor, "*C t"],
    comparator_losses: Float[Tensor, "*C t"],
    weights: Float[Tensor, " t"],
    timesteps: Int[Tensor, " t"],
    period: int,
) -> Float[Tensor, "*C intervals"]:
    """Regret within the intervals of one period that begin at timesteps 1, 1 + period, ...; their sum is Reg_T."""
    interval = (timesteps - 1) // period
    present = interval == torch.arange(int(interval.max()) + 1, device=interval.device).unsqueeze(-1)
    excess = (losses - comparator_losses) * weights
    return excess @ present.to(excess.dtype).mT
