"""How far a client's law has moved over a run, and how well the signals say so: paper Sec. 5.1.

Axes: *C any client axes, T timesteps, times the same with t = 0 before them, K classes, d features.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.maths.signals.dynamics import cosine_distance


def cumulative_signal(signals: Float[Tensor, "*C T"]) -> Float[Tensor, "*C"]:
    """S̄ = Σ_t S^t of one signal, paper Sec. 5.1 (before th:estimate_uncertainty, th:estimate_representation)."""
    return signals.sum(-1)


def combined_surrogate(s_unc: Float[Tensor, "*C"], s_rep: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
    """S̄_c = ½ (S̄_unc + S̄_rep), paper Sec. 5.1 (before eq:combined_error_bound)."""
    return (s_unc + s_rep) / 2


def l1_path_length(priors: Float[Tensor, "*C times K"]) -> Float[Tensor, "*C"]:
    """V^L1 = Σ_t ‖Q^t − Q^{t−1}‖₁, the true path length of paper Sec. 5.1 (eq:unc_error_bound)."""
    return priors.diff(dim=-2).abs().sum((-2, -1))


def cosine_path_length(summaries: Float[Tensor, "*C times d"]) -> Float[Tensor, "*C"]:
    """V^cos = Σ_t (1 − cos(v^t, v^{t−1})): what S̄_unc estimates, appendix, proof of th:estimate_uncertainty, step 3.

    Of second order in the step size, so it is no estimate of V^L1, although th:estimate_uncertainty says so.
    """
    return cosine_distance(summaries[..., :-1, :], summaries[..., 1:, :]).sum(-1)


def representation_path_length(features: Float[Tensor, "*C times d"]) -> Float[Tensor, "*C"]:
    """V_rep = Σ_t ½ (1 − cos(z̄^t, z̄^{t−1})) of expected features, paper Sec. 5.1 (eq:rep_error_bound)."""
    return cosine_path_length(features) / 2


def cosine_lipschitz_constant(
    estimates: Float[Tensor, "*C times d"], truths: Float[Tensor, "*C times d"]
) -> Float[Tensor, "*C"]:
    """K_cos = 1 / the smallest norm met: |cos(a, b) − cos(a', b)| ≤ ‖a − a'‖ / min(‖a‖, ‖a'‖); at most √K on priors."""
    norms: Tensor = torch.linalg.vector_norm(torch.stack([estimates, truths]), dim=-1)
    return 1 / norms.amin(-1).amin(0)


def surrogate_error_bound(errors: Float[Tensor, "*C times"], constant: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
    """K Σ_{t=1}^T (ε_t + ε_{t−1}), the right side of eq:unc_error_bound and, halved, of eq:rep_error_bound.

    The paper sums from t = 2 although its left side begins at t = 1; the inequality needs the first step too.
    """
    return constant * (errors[..., 1:] + errors[..., :-1]).sum(-1)


def smallest_singular_value(confusion: Float[Tensor, "K K"]) -> Float[Tensor, ""]:
    """σ of th:regretbound: how well M can be inverted."""
    smallest: Tensor = torch.linalg.svdvals(confusion.double())[-1]
    return smallest
