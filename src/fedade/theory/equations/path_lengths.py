"""How far a client's law has moved over a run, and how well the signals say so: paper Sec. 5.1.

Axes: *C any client axes, times the timesteps from t = 0 on, K classes, d features.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.maths.signals.dynamics import cosine_distance


def l1_path_length(priors: Float[Tensor, "*C times K"]) -> Float[Tensor, "*C"]:
    """V^L1 = Σ_t ‖Q^t − Q^{t−1}‖₁, the true path length of paper Sec. 5.1 (eq:unc_error_bound)."""
    return priors.diff(dim=-2).abs().sum((-2, -1))


def cosine_path_length(summaries: Float[Tensor, "*C times d"]) -> Float[Tensor, "*C"]:
    """V^cos = Σ_t (1 − cos(v^t, v^{t−1})): what S̄_unc estimates, appendix, proof of th:estimate_uncertainty, step 3.

    Of second order in the step size, so it is no estimate of V^L1, although th:estimate_uncertainty says so. Half of it
    is V_rep of expected features (eq:rep_error_bound).
    """
    return cosine_distance(summaries[..., :-1, :], summaries[..., 1:, :]).sum(-1)


def surrogate_error_bound(
    estimates: Float[Tensor, "*C times d"], truths: Float[Tensor, "*C times d"]
) -> Float[Tensor, "*C"]:
    """K_cos Σ_{t=1}^T (ε_t + ε_{t−1}), the right side of eq:unc_error_bound and, halved, of eq:rep_error_bound.

    K_cos = 1 / the smallest norm met, since |cos(a, b) − cos(a', b)| ≤ ‖a − a'‖ / min(‖a‖, ‖a'‖). The paper sums from
    t = 2 although its left side begins at t = 1; the inequality needs the first step too.
    """
    errors: Tensor = torch.linalg.vector_norm(estimates - truths, dim=-1)
    norms: Tensor = torch.linalg.vector_norm(torch.stack([estimates, truths]), dim=-1)
    return (errors[..., 1:] + errors[..., :-1]).sum(-1) / norms.amin(-1).amin(0)


def smallest_singular_value(confusion: Float[Tensor, "K K"]) -> float:
    """σ of th:regretbound: how well M can be inverted."""
    return float(torch.linalg.svdvals(confusion.double())[-1])
