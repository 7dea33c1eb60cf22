"""Quadratic programmes over non-negative vectors, for many clients at once.

Alternating directions (ADMM, Boyd et al., 2011) with a fixed number of iterations: no branching on values, so
the solver works under ``vmap``. Axes: *C any client axes, K unknowns.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

_OVER_RELAXATION = 1.7


def nonnegative_minimum(
    step: Callable[[Float[Tensor, "*C K"]], Float[Tensor, "*C K"]],
    start: Float[Tensor, "*C K"],
    iterations: int,
) -> Float[Tensor, "*C K"]:
    """Minimum of f(x) over x ≥ 0, where ``step(v)`` is the free minimum of f(x) + penalty/2 ‖x - v‖².

    The iterate and its scaled multiplier are the positive and the negative part of one vector, so their
    difference, ADMM's usual argument v, is its absolute value. The answer's positive part is the minimum.
    """
    state = start
    for _ in range(iterations):
        relaxed = _OVER_RELAXATION * step(state.abs()) + (1 - _OVER_RELAXATION) * state.clamp_min(0)
        state = relaxed + state.clamp_max(0)
    return state


def simplex_quadratic(
    hessian: Float[Tensor, "K K"], linear: Float[Tensor, "*C K"], iterations: int
) -> Float[Tensor, "*C K"]:
    """Minimum of ½ xᵀHx - gᵀx over the probability simplex, up to the solver's accuracy."""
    penalty = _penalty(torch.linalg.eigvalsh(hessian))
    resolvent = torch.linalg.inv(
        hessian + penalty * torch.eye(len(hessian), dtype=hessian.dtype, device=hessian.device)
    )
    row_sums = resolvent.sum(-1)
    on_plane = resolvent - row_sums.unsqueeze(-1) * row_sums / row_sums.sum()
    base = linear @ on_plane + row_sums / row_sums.sum()
    weighted = penalty * on_plane
    return nonnegative_minimum(lambda v: base + v @ weighted, base, iterations).clamp_min(0)


def nonnegative_quadratic(
    eigenvalues: Float[Tensor, "*C K"],
    eigenvectors: Float[Tensor, "K K"],
    linear: Float[Tensor, "*C K"],
    start: Float[Tensor, "*C K"],
    iterations: int,
) -> Float[Tensor, "*C K"]:
    """Minimum of ½ xᵀHx - gᵀx over x ≥ 0, where the Hessians of all clients share their eigenvectors."""
    penalty = _penalty(eigenvalues).unsqueeze(-1)
    scales = 1 / (eigenvalues + penalty)

    def step(v: Tensor) -> Tensor:
        return ((linear + penalty * v) @ eigenvectors * scales) @ eigenvectors.mT

    return nonnegative_minimum(step, start, iterations).clamp_min(0)


def _penalty(eigenvalues: Tensor) -> Tensor:
    # The geometric mean of the extreme curvatures balances how fast both are solved.
    return (eigenvalues.amin(-1) * eigenvalues.amax(-1)).sqrt()
