"""Losses without labels: the risk from labelled reference data and an estimated prior (paper Sec. 3), Shannon entropy
in nats, and labels that a model gives itself.

Axes: *C any client axes, n samples, K classes, d features.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def class_weights(prior: Float[Tensor, "*C K"], labels: Int[Tensor, "*C n"]) -> Float[Tensor, "*C n"]:
    """w_j = q_{y_j} n / n_{y_j}: mean_j w_j loss_j is the estimated risk of paper Sec. 3 (eq:estimated_risk). A class
    without reference samples contributes nothing."""
    counts = one_hot(labels, prior.shape[-1], prior.dtype).sum(-2)
    per_class = prior * labels.shape[-1] / counts.clamp_min(1)
    return per_class.gather(-1, labels)


def estimated_risk(
    logits: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"], weights: Float[Tensor, "*C n"]
) -> Float[Tensor, "*C"]:
    """Σ_i q_i (mean loss of class i) as one weighted mean over samples, paper Sec. 3 (eq:estimated_risk)."""
    return (weights * cross_entropies(logits, labels)).mean(-1)


def cross_entropies(logits: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"]) -> Float[Tensor, "*C n"]:
    return -torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def one_hot(labels: Int[Tensor, "*C n"], num_classes: int, dtype: torch.dtype) -> Float[Tensor, "*C n K"]:
    """Class memberships as 0 and 1, under `vmap` too."""
    return (labels.unsqueeze(-1) == torch.arange(num_classes, device=labels.device)).to(dtype)


def entropy(probabilities: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """-Σ p log p with 0 log 0 = 0."""
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


def entropy_from_logits(logits: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Entropy of softmax(logits), with finite values and gradients however large the logits are."""
    log_probabilities = torch.log_softmax(logits, -1)
    # A log-probability may overflow to -inf, and 0 · -inf would be NaN.
    finite = log_probabilities.clamp_min(torch.finfo(logits.dtype).min)
    return -(log_probabilities.exp() * finite).sum(-1)


def confident_labels(
    probabilities: Float[Tensor, "*C n K"], confidence: float
) -> tuple[Int[Tensor, "*C n"], Float[Tensor, "*C n"]]:
    """Most probable class of each sample, and trust in it: 1 from the given confidence on, 0 below (Lee, 2013)."""
    highest, labels = probabilities.max(-1)
    return labels, (highest >= confidence).to(probabilities.dtype)


def class_totals(labels: Int[Tensor, "*C n"], trust: Float[Tensor, "*C n"], num_classes: int) -> Float[Tensor, "*C K"]:
    """Trust that fell on each class: its sample count where all trust is 0 or 1."""
    return (one_hot(labels, num_classes, trust.dtype) * trust.unsqueeze(-1)).sum(-2)


def class_means(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], trust: Float[Tensor, " n"], num_classes: int
) -> Float[Tensor, "K d"]:
    """Prototype of each class: the trusted samples' mean feature; 0 for a class without any."""
    membership = one_hot(labels, num_classes, features.dtype) * trust.unsqueeze(-1)
    totals = membership.sum(0).unsqueeze(-1)
    return membership.mT @ features / torch.where(totals > 0, totals, 1)


def class_balanced(
    labels: Int[Tensor, "*C n"], trust: Float[Tensor, "*C n"], num_classes: int
) -> Float[Tensor, "*C n"]:
    """Trust rescaled so that every class that has any gets the same total."""
    totals = class_totals(labels, trust, num_classes).gather(-1, labels)
    return trust / torch.where(totals > 0, totals, 1)


def balanced_sample(
    labels: Int[Tensor, "*C n"],
    trust: Float[Tensor, "*C n"],
    uniforms: Float[Tensor, "*C n"],
    num_classes: int,
    most: int,
) -> Float[Tensor, "*C n"]:
    """1 for a random choice of trusted samples (trust is 0 or 1), equally many of each class that has any. As many as
    the rarest of these classes has, and no more than `most`. A sample is chosen if few of its class drew a smaller
    uniform number."""
    totals = class_totals(labels, trust, num_classes)
    rarest = torch.where(totals > 0, totals, torch.inf).amin(-1, keepdim=True).clamp_max(most)
    same_class = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    smaller = uniforms.unsqueeze(-2) < uniforms.unsqueeze(-1)
    rank = (same_class & smaller).to(trust.dtype) @ trust.unsqueeze(-1)
    return trust * (rank.squeeze(-1) < rarest).to(trust.dtype)


def weighted_cross_entropy(
    logits: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"], weights: Float[Tensor, "*C n"]
) -> Float[Tensor, "*C"]:
    """Σ w · loss / Σ w over the samples; 0 where no sample has weight."""
    total = weights.sum(-1)
    return (weights * cross_entropies(logits, labels)).sum(-1) / torch.where(total > 0, total, 1)
