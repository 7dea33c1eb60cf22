"""Estimators of accuracy without labels that the product's monitor is held against.

Axes: *C any leading axes, m held-out samples, n samples, K classes.

Each is fitted on a labelled held-out set and then read on a stream. All are exact on the held-out set itself; they
differ in what they assume to stay the same while the law moves:

* the share of errors below a confidence (ATC: Garg et al., 2022);
* the gap between confidence and accuracy (DoC: Guillory et al., 2021);
* the meaning of a confidence (CBPE of NannyML);
* the accuracy on each class (BBSE's assumption: Lipton et al., 2018).
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedade.adapter.accuracy_estimation import confidence, correct
from fedade.maths.priors.reweighting import reweight


def negative_entropy(probabilities: Float[Tensor, "*C n K"]) -> Float[Tensor, "*C n"]:
    """Σ p log p: the score that ATC calls NE."""
    terms: Tensor = torch.special.xlogy(probabilities, probabilities)
    return terms.sum(-1)


def threshold(scores: Float[Tensor, " m"], right: Bool[Tensor, " m"]) -> Float[Tensor, ""]:
    """ATC's threshold: as many held-out scores lie below it as there are errors; infinite if all are wrong."""
    ascending = torch.cat([scores.sort().values, scores.new_full((1,), math.inf)])
    return ascending[(~right).sum()]


def average_thresholded_confidence(scores: Float[Tensor, "*C n"], limit: Float[Tensor, ""]) -> Float[Tensor, "*C"]:
    """ATC: the share of scores that reach the threshold (Garg et al., 2022, eq. 1)."""
    return (scores >= limit).to(scores.dtype).mean(-1)


def difference_of_confidences(
    confidences: Float[Tensor, "*C n"], held_out_confidence: Float[Tensor, "*C"], held_out_accuracy: Float[Tensor, "*C"]
) -> Float[Tensor, "*C"]:
    """DoC: held-out accuracy plus the change of the mean confidence (Guillory et al., 2021), cut to [0, 1]."""
    return (held_out_accuracy + confidences.mean(-1) - held_out_confidence).clamp(0, 1)


def accuracy_under(
    prior: Float[Tensor, " K"],
    probabilities: Float[Tensor, "m K"],
    labels: Int[Tensor, " m"],
    mean_prediction: Float[Tensor, " K"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Accuracy and mean confidence of the held-out data, were classes as frequent as this prior says.

    Σ_k q_k acc_k, where acc_k is the accuracy on class k of the decisions that are corrected for the same prior
    (Saerens et al., 2002). A class without held-out samples counts as the others do on average.
    """
    counts = torch.bincount(labels, minlength=len(prior))
    corrected = reweight(probabilities, prior, mean_prediction)
    weights = (prior / counts.clamp(min=1))[labels]
    weights = weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
    right = correct(corrected, labels).to(weights.dtype)
    return (weights * right).sum(), (weights * confidence(corrected)).sum()


def isotonic(scores: Float[Tensor, " m"], right: Bool[Tensor, " m"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """Sorted scores and the increasing chances that fit best, by pooling adjacent violators (Ayer et al., 1955)."""
    order = scores.argsort(stable=True)
    blocks: list[tuple[float, int]] = []
    for target in right[order].tolist():
        mean, size = float(target), 1
        while blocks and blocks[-1][0] >= mean:
            before, number = blocks.pop()
            mean, size = (before * number + mean * size) / (number + size), number + size
        blocks.append((mean, size))
    fitted = [mean for mean, size in blocks for _ in range(size)]
    return scores[order], torch.tensor(fitted, dtype=scores.dtype, device=scores.device)


def isotonic_chances(
    scores: Float[Tensor, "*C n"], knots: tuple[Float[Tensor, " m"], Float[Tensor, " m"]]
) -> Float[Tensor, "*C n"]:
    """CBPE: the fitted chance at the nearest knot below, or the first one."""
    places = torch.searchsorted(knots[0], scores.contiguous(), right=True) - 1
    return knots[1][places.clamp(min=0)]
