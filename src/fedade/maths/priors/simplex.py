"""Distributions over classes as points of the probability simplex, and quadratic programmes over it.

The programmes are solved for many clients at once by alternating directions (ADMM, Boyd et al., 2011) with a fixed
number of iterations: no branching on values, so the solver works under ``vmap``. Axes: *C any leading axes, K classes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.kernels import absolute_iterations

_OVER_RELAXATION = 1.7


def project_to_simplex(vector: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """Nearest distribution in Euclidean distance, by sorting (Held, Wolfe and Crowder, 1974)."""
    # A common shift leaves the projection unchanged; with the maximum at 0 no precision is lost to it.
    shifted = vector - vector.amax(-1, keepdim=True)
    descending = shifted.sort(-1, descending=True).values
    ranks = torch.arange(1, vector.shape[-1] + 1, dtype=vector.dtype, device=vector.device)
    thresholds = (descending.cumsum(-1) - 1) / ranks
    support_size = (descending > thresholds).sum(-1, keepdim=True).clamp_min(1)  # of NaN too, which stays NaN
    kept = (shifted - thresholds.gather(-1, support_size - 1)).clamp_min(0)
    return kept / kept.sum(-1, keepdim=True)


def normalise(masses: Float[Tensor, "*C K"], fallback: Float[Tensor, " K"]) -> Float[Tensor, "*C K"]:
    """Non-negative masses scaled to sum to 1; where all are 0, the fallback."""
    total = masses.sum(-1, keepdim=True)
    return torch.where(total > 0, masses / torch.where(total > 0, total, 1), fallback)


def mix_with_uniform(prior: Float[Tensor, "*C K"], weight: float) -> Float[Tensor, "*C K"]:
    """(1 - weight) prior + weight · uniform, so that no class has probability 0."""
    return (1 - weight) * prior + weight / prior.shape[-1]


class SimplexFactors(NamedTuple):
    """What the minimum of ½ xᵀHx - gᵀx over the probability simplex needs of H, whatever g is."""

    on_plane: Float[Tensor, "K K"]
    offset: Float[Tensor, " K"]
    iteration: Float[Tensor, "K K"]


def simplex_factors(hessian: Float[Tensor, "K K"]) -> SimplexFactors:
    """The factors of a Hessian. With |s| = s⁺ + s⁻ and s = s⁺ - s⁻, one over-relaxed step (`nonnegative_quadratic`)
    from s is affine in |s| and s: r (base + penalty |s| P) + (1 - r) s⁺ - s⁻ = r base + |s| (r penalty P - r/2 I) + (1
    - r/2) s, which is one matrix product and one sum."""
    identity = torch.eye(len(hessian), dtype=hessian.dtype, device=hessian.device)
    penalty = _penalty(torch.linalg.eigvalsh(hessian))
    resolvent = torch.linalg.inv(hessian + penalty * identity)
    row_sums = resolvent.sum(-1)
    on_plane = resolvent - row_sums.unsqueeze(-1) * row_sums / row_sums.sum()
    iteration = _OVER_RELAXATION * penalty * on_plane - _OVER_RELAXATION / 2 * identity
    return SimplexFactors(on_plane, row_sums / row_sums.sum(), iteration)


def simplex_quadratic(factors: SimplexFactors, linear: Float[Tensor, "*C K"], iterations: int) -> Float[Tensor, "*C K"]:
    """Minimum of ½ xᵀHx - gᵀx over the probability simplex, up to the solver's accuracy."""
    base = linear @ factors.on_plane + factors.offset
    share = 1 - _OVER_RELAXATION / 2
    return absolute_iterations(base, _OVER_RELAXATION * base, factors.iteration, share, iterations).clamp_min(0)


def nonnegative_quadratic(
    eigenvalues: Float[Tensor, "*C K"],
    eigenvectors: Float[Tensor, "K K"],
    linear: Float[Tensor, "*C K"],
    start: Float[Tensor, "*C K"],
    iterations: int,
) -> Float[Tensor, "*C K"]:
    """Minimum of ½ xᵀHx - gᵀx over x ≥ 0, where the Hessians of all clients share their eigenvectors. The iterate and
    its scaled multiplier are the positive and the negative part of one vector, so their difference, ADMM's usual
    argument, is its absolute value."""
    penalty = _penalty(eigenvalues).unsqueeze(-1)
    scales = 1 / (eigenvalues + penalty)
    state = start
    for _ in range(iterations):
        free_minimum = ((linear + penalty * state.abs()) @ eigenvectors * scales) @ eigenvectors.mT
        relaxed = _OVER_RELAXATION * free_minimum + (1 - _OVER_RELAXATION) * state.clamp_min(0)
        state = relaxed + state.clamp_max(0)
    return state.clamp_min(0)


def _penalty(eigenvalues: Tensor) -> Tensor:
    # The geometric mean of the extreme curvatures balances how fast both are solved.
    return (eigenvalues.amin(-1) * eigenvalues.amax(-1)).sqrt()
