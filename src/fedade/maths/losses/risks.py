"""Label-free risk from labelled reference data and an estimated prior, paper Sec. 3.

Axes: *C any client axes, n reference samples, K classes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def class_weights(prior: Float[Tensor, "*C K"], labels: Int[Tensor, "*C n"]) -> Float[Tensor, "*C n"]:
    """w_j = q_{y_j} n / n_{y_j}: mean_j w_j loss_j is the estimated risk of paper Sec. 3 (eq:estimated_risk).

    A class without reference samples contributes nothing.
    """
    counts = one_hot(labels, prior.shape[-1], prior.dtype).sum(-2)
    per_class = prior * labels.shape[-1] / counts.clamp_min(1)
    return per_class.gather(-1, labels)


def estimated_risk(
    logits: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"], weights: Float[Tensor, "*C n"]
) -> Float[Tensor, "*C"]:
    """Σ_i q_i (mean loss of class i) as one weighted mean over samples, paper Sec. 3 (eq:estimated_risk)."""
    return (weights * cross_entropies(logits, labels)).mean(-1)


def cross_entropies(logits: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"]) -> Float[Tensor, "*C n"]:
    """The loss of every sample."""
    return -torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def one_hot(labels: Int[Tensor, "*C n"], num_classes: int, dtype: torch.dtype) -> Float[Tensor, "*C n K"]:
    """Class memberships as 0 and 1, under `vmap` too."""
    return (labels.unsqueeze(-1) == torch.arange(num_classes, device=labels.device)).to(dtype)
