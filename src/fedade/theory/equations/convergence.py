"""The paper's convergence theorem (appendix, th:convergence): its ceiling on the rate, both sides of its inequality."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Convergence(NamedTuple):
    """The constants of the theorem's assumptions, and who takes part."""

    k_shared: float  # K_ψ
    k_personal: float  # K_φ
    k_cross: float
    """K_ψφ, which is K_φψ for a twice differentiable loss."""
    rho_squared: float
    """ρ² of asm:partial gradient."""
    delta_squared: float  # δ²
    variance_shared: float
    """σ_ψ² of asm:bounded: of a step's gradient by ψ."""
    variance_personal: float  # σ_φ²
    participants: int  # |C^(r)|
    num_clients: int  # |C|

    @property
    def chi(self) -> float:
        """χ = max{K_ψφ, K_φψ} / √(K_ψ K_φ), appendix (asm:lipschitz)."""
        return self.k_cross / math.sqrt(self.k_shared * self.k_personal)

    @property
    def participation(self) -> float:
        return self.participants / self.num_clients

    def ceiling(self) -> float:
        """min{1/(24(1+ρ²)), m/(128χ²(C−m)), √(m/(χ²C))}: the largest η of which the theorem speaks. With all clients
        taking part the second is infinite, as is every division by χ = 0."""
        absent = self.num_clients - self.participants
        second = self.participants / (128 * absent) / self.chi / self.chi if self.chi and absent else math.inf
        third = math.sqrt(self.participation) / self.chi if self.chi else math.inf
        return min(1 / (24 * (1 + self.rho_squared)), second, third)

    def descent(self, shared: float, personal: float) -> float:
        """Δ_ψ / K_ψ + m Δ_φ / (C K_φ), the left side (theorem1), from means over the rounds. Δ_ψ = ‖∇_ψ L‖² of the mean
        loss, Δ_φ = (1/C) Σ_c ‖∇_φ L_c‖²."""
        return shared / self.k_shared + self.participation * personal / self.k_personal

    def descent_bound(self, loss_gap: float, rates: tuple[float, float], rounds: int, steps: int) -> float:
        """ΔL⁰/(ηR) + ησ₁² + η²σ₂², the right side (theorem1), as printed: its proof has factors of up to 32 besides.
        The theorem has one η and steps of η/(K_ψE) and η/(K_φE). Where a run has one rate for both, its η lies between
        `rates`: the lower one counts in the first term, the higher one in the others, which can only raise the sum."""
        low, high = rates
        away = 1 - self.participation
        shared, personal = self.variance_shared / self.k_shared, self.variance_personal / self.k_personal
        diversity = self.delta_squared / self.k_shared
        first = diversity * away + shared + personal * (self.participation + self.chi**2 * away)
        second = (shared + diversity + personal * self.participation) * (1 - 1 / steps) + self.chi**2 * personal
        return loss_gap / (low * rounds) + high * first + high**2 * second


def gradient_diversity(
    spreads: Float[Tensor, " points"], squared_norms: Float[Tensor, " points"]
) -> tuple[float, float]:
    """ρ² and δ² ≥ 0 with which spread ≈ δ² + ρ² ‖∇F‖² in least squares, appendix (asm:partial gradient). A spread is
    (1/C) Σ_c ‖∇_ψ F_c − ∇_ψ F‖² at one point. The assumption wants a bound at every point; this is the trend through
    those that were measured."""
    x, y = squared_norms.double(), spreads.double()
    centred = x - x.mean()
    slope = (centred * y).sum() / centred.square().sum() if centred.any() else torch.zeros_like(y[0])
    slope = slope.clamp_min(0)
    intercept = y.mean() - slope * x.mean()
    if intercept < 0:
        slope, intercept = (x * y).sum() / x.square().sum(), torch.zeros_like(intercept)
    return float(slope), float(intercept)


def largest_singular_value(
    forward: Callable[[Float[Tensor, " a"]], Float[Tensor, " b"]],
    backward: Callable[[Float[Tensor, " b"]], Float[Tensor, " a"]],
    start: Float[Tensor, " a"],
    iterations: int = 20,
) -> Float[Tensor, ""]:
    """Largest singular value of A, from A and Aᵀ (von Mises and Pollaczek-Geiringer, 1929); never above the true one.
    For a symmetric A, `backward` is `forward`."""
    vector = _unit(start)
    for _ in range(iterations - 1):
        vector = _unit(backward(forward(vector)))
    largest: Tensor = torch.linalg.vector_norm(forward(vector))
    return largest


def _unit(vector: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(vector)
    return vector / torch.where(norm > 0, norm, torch.ones_like(norm))
