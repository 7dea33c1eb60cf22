"""How far a client's law has moved over a run, and how well the signals say so: paper Sec. 5.1. Empirical dynamic
regret, Sec. 5.2, its bound (th:regretbound) and the learning rate that makes that smallest.

The bound's third term is √(B S̄ T)/η in the main text and √(B S̄ T/η) in the appendix. Only the appendix's leads to
S̄^{1/3} T^{2/3}, so that is the one here. The bound assumes convex losses.

Axes: *C any client axes, times the timesteps from t = 0 on, K classes, d features, t timesteps at which losses were
measured.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from scipy.optimize import brentq
from torch import Tensor

from fedade.maths.signals.dynamics import cosine_distance


@dataclass(frozen=True)
class BoundConstants:
    """What the bound is made of."""

    num_classes: int  # |I|
    gradient_norm: float
    """G: no gradient of a sample's loss is longer."""
    loss: float
    """B: no sample's loss is larger."""
    radius: float
    """Γ: parameters and comparators stay within this distance of one another."""
    singular_value: float
    """σ of the confusion matrix."""
    variation: float
    """S̄_c as the theorem says, or V^L1 as its proof needs: B V^L1 bounds Σ sup |F_t − F_{t−1}| under label shift."""
    num_timesteps: int  # T


class BoundTerms(NamedTuple):
    """The three summands of the bound."""

    optimisation: float
    projection: float
    adaptation: float

    @property
    def total(self) -> float:
        return sum(self)


def bound_terms(constants: BoundConstants, rate: float) -> BoundTerms:
    """2(|I|G²/σ² + B²)ηT, Γ²/η and 4(Γ+1)√(B S̄ T/η): appendix, proof of th:regretbound."""
    slope, inverse, root = _coefficients(constants)
    return BoundTerms(slope * rate, inverse / rate, root / math.sqrt(rate))


def optimal_rate_order(cumulative_signal: float, num_timesteps: int) -> float:
    """(S̄/T)^{1/3}: η* up to a constant that the paper does not give, Sec. 5.2 ("Min-max Optimality")."""
    return float((cumulative_signal / num_timesteps) ** (1 / 3))


def optimal_rate(constants: BoundConstants) -> float:
    """η at which the three terms together are smallest; 0 where every rate above it is worse. There the rising term is
    as steep as the falling ones. At the lower end of the bracket one of these alone is as steep; at the upper end none
    is more than half as steep."""
    slope, inverse, root = _coefficients(constants)
    if slope == 0:
        return math.inf
    low = max(math.sqrt(inverse / slope), (root / (2 * slope)) ** (2 / 3))
    high = max(math.sqrt(2 * inverse / slope), (root / slope) ** (2 / 3))
    if low == 0:
        return 0.0
    steepness = lambda rate: slope - (inverse / rate + root / (2 * math.sqrt(rate))) / rate  # noqa: E731
    return float(brentq(steepness, low * (1 - 1e-9), high * (1 + 1e-9), xtol=1e-12 * low))


def _coefficients(constants: BoundConstants) -> tuple[float, float, float]:
    """Factors of η, 1/η and 1/√η in the bound."""
    steepness = constants.num_classes * constants.gradient_norm**2 / constants.singular_value**2
    return (
        2 * (steepness + constants.loss**2) * constants.num_timesteps,
        constants.radius**2,
        4 * (constants.radius + 1) * math.sqrt(constants.loss * constants.variation * constants.num_timesteps),
    )


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


def l1_path_length(priors: Float[Tensor, "*C times K"]) -> Float[Tensor, "*C"]:
    """V^L1 = Σ_t ‖Q^t − Q^{t−1}‖₁, the true path length of paper Sec. 5.1 (eq:unc_error_bound)."""
    return priors.diff(dim=-2).abs().sum((-2, -1))


def cosine_path_length(summaries: Float[Tensor, "*C times d"]) -> Float[Tensor, "*C"]:
    """V^cos = Σ_t (1 − cos(v^t, v^{t−1})): what S̄_unc estimates, appendix, proof of th:estimate_uncertainty, step 3.
    Of second order in the step size, so it is no estimate of V^L1, although th:estimate_uncertainty says so. Half of it
    is V_rep of expected features (eq:rep_error_bound)."""
    return cosine_distance(summaries[..., :-1, :], summaries[..., 1:, :]).sum(-1)


def surrogate_error_bound(
    estimates: Float[Tensor, "*C times d"], truths: Float[Tensor, "*C times d"]
) -> Float[Tensor, "*C"]:
    """K_cos Σ_{t=1}^T (ε_t + ε_{t−1}), the right side of eq:unc_error_bound and, halved, of eq:rep_error_bound. K_cos =
    1 / the smallest norm met, since |cos(a, b) − cos(a', b)| ≤ ‖a − a'‖ / min(‖a‖, ‖a'‖). The paper sums from t = 2
    although its left side begins at t = 1; the inequality needs the first step too."""
    errors: Tensor = torch.linalg.vector_norm(estimates - truths, dim=-1)
    norms: Tensor = torch.linalg.vector_norm(torch.stack([estimates, truths]), dim=-1)
    return (errors[..., 1:] + errors[..., :-1]).sum(-1) / norms.amin(-1).amin(0)


def smallest_singular_value(confusion: Float[Tensor, "K K"]) -> float:
    """σ of th:regretbound: how well M can be inverted."""
    return float(torch.linalg.svdvals(confusion.double())[-1])
