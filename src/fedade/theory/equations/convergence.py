"""The learning rate below which the paper's convergence theorem holds: appendix, th:convergence."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def cross_sensitivity(k_shared: float, k_personal: float, k_cross: float) -> float:
    """χ = max{K_ψφ, K_φψ} / √(K_ψ K_φ), appendix (asm:lipschitz); for a twice differentiable loss K_ψφ = K_φψ."""
    return k_cross / math.sqrt(k_shared * k_personal)


def convergence_ceiling(rho_squared: float, chi: float, participants: int, num_clients: int) -> float:
    """min{1/(24(1+ρ²)), m/(128χ²(C−m)), √(m/(χ²C))}, appendix (th:convergence).

    With all clients taking part the second is infinite, as is every division by χ = 0.
    """
    absent = num_clients - participants
    second = participants / (128 * absent) / chi / chi if chi and absent else math.inf
    third = math.sqrt(participants / num_clients) / chi if chi else math.inf
    return min(1 / (24 * (1 + rho_squared)), second, third)


def gradient_diversity(
    spreads: Float[Tensor, " points"], squared_norms: Float[Tensor, " points"]
) -> tuple[float, float]:
    """ρ² and δ² ≥ 0 with which spread ≈ δ² + ρ² ‖∇F‖² in least squares, appendix (asm:partial gradient).

    A spread is (1/C) Σ_c ‖∇_ψ F_c − ∇_ψ F‖² at one point. The assumption wants a bound at every point; this is the
    trend through those that were measured.
    """
    x, y = squared_norms.double(), spreads.double()
    centred = x - x.mean()
    slope = (centred * y).sum() / centred.square().sum() if centred.any() else torch.zeros_like(y[0])
    slope = slope.clamp_min(0)
    intercept = y.mean() - slope * x.mean()
    if intercept < 0:
        slope, intercept = (x * y).sum() / x.square().sum(), torch.zeros_like(intercept)
    return float(slope), float(intercept)
