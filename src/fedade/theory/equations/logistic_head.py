"""The best linear head on given features: an exact minimiser of a convex problem.

Axes: n samples, d features, K classes; a head is as wide as the features and a constant.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

PENALTY = 1e-2
"""λ of ½ λ ‖W‖²: without it features that separate the classes have no finite minimiser."""
GAP = 1e-6
"""The value that is reached is at most this far above the smallest."""
_ITERATIONS = 2000
_HISTORY = 30


def fit_logistic_head(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], prior: Float[Tensor, " K"], penalty: float = PENALTY
) -> Float[Tensor, "K d+1"]:
    """W that minimises Σ_i q_i (mean cross-entropy of class i) + ½ λ ‖W‖², by L-BFGS in float64. The objective is
    λ-strongly convex, so a gradient g proves that no value is lower by more than ‖g‖² / (2 λ)."""
    classes = one_hot(labels, len(prior)).double()
    weights = (classes @ (prior.double() / classes.sum(0).clamp_min(1))).unsqueeze(-1)
    rows = _with_constant(features.double())
    head = torch.zeros(len(prior), rows.shape[1], dtype=rows.dtype, device=rows.device)
    search = torch.optim.LBFGS(
        [head],
        max_iter=_ITERATIONS,
        max_eval=2 * _ITERATIONS,
        tolerance_grad=math.sqrt(2 * penalty * GAP / head.numel()),
        tolerance_change=0,
        history_size=_HISTORY,
        line_search_fn="strong_wolfe",
    )

    def value() -> float:
        logarithms = torch.log_softmax(rows @ head.mT, -1)
        head.grad = (weights * (logarithms.exp() - classes)).mT @ rows + penalty * head
        return float(penalty / 2 * head.square().sum() - (weights * classes * logarithms).sum())

    search.step(value)  # type: ignore[no-untyped-call]
    return head


def head_probabilities(head: Float[Tensor, "K width"], features: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C n K"]:
    return torch.softmax(_with_constant(features.double()) @ head.mT, -1)


def _with_constant(features: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C n d+1"]:
    """Features with a 1 appended, for the bias."""
    return torch.cat([features, torch.ones_like(features[..., :1])], -1)
