"""Accuracy without labels, from a labelled held-out set: chances of being right, and an alarm where they fall short.

Axes: *C any leading axes, m held-out samples, n samples, K classes, d measurements of a sample.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_NEWTON_STEPS = 30
_STEP_LENGTHS = torch.tensor([1.0, 0.5, 0.25, 0.1, 0.01, 0.0]).unsqueeze(-1)
_CERTAIN = 1e-6
"""Distance from 0 and 1 at which confidences are cut before their log odds are taken."""
_SMALLEST_EXCESS, _HALVINGS = 1e-3, 50


def correct(probabilities: Float[Tensor, "*C n K"], labels: Int[Tensor, "*C n"]) -> Bool[Tensor, "*C n"]:
    """Whether the most probable class is the label."""
    return probabilities.argmax(-1) == labels


def confidence(probabilities: Float[Tensor, "*C n K"]) -> Float[Tensor, "*C n"]:
    """Probability of the predicted class: the score that ATC calls MC (Garg et al., 2022)."""
    return probabilities.amax(-1)


def log_odds(confidences: Float[Tensor, "*C n"]) -> Float[Tensor, "*C n"]:
    """log c / (1 − c), finite."""
    return torch.logit(confidences, _CERTAIN)


def fit_chances(
    measurements: Float[Tensor, "m d"],
    right: Bool[Tensor, " m"],
    ridge: float = 1.0,
    known: Float[Tensor, " m"] | float = 0.0,
) -> Float[Tensor, " d"]:
    """Weights of the logistic regression of being right on what was measured (Platt, 1999, by Newton's method).

    The ridge, in samples, keeps the weights finite where right and wrong can be told apart without error; with it the
    mean chance on the same data is their accuracy to about ridge / m. A constant must be among the measurements, unless
    `known` log odds are given to which they add.
    """
    inputs, targets = measurements.double(), right.double()
    eye = ridge * torch.eye(inputs.shape[-1], dtype=inputs.dtype, device=inputs.device)
    weights = inputs.new_zeros(inputs.shape[-1])
    base = torch.as_tensor(known, dtype=inputs.dtype, device=inputs.device).expand(len(inputs)).unsqueeze(-1)
    for _ in range(_NEWTON_STEPS):
        chances = (inputs @ weights + base.squeeze(-1)).sigmoid()
        slope = inputs.mT @ (targets - chances) - ridge * weights
        curvature = (inputs * (chances * (1 - chances))[:, None]).mT @ inputs + eye
        step = torch.linalg.solve(curvature, slope)
        # A full step can overshoot where nearly all are right: the best of several lengths is taken.
        tried = weights + step * _STEP_LENGTHS.to(step)
        weights = tried[_surprise(inputs @ tried.mT + base, targets, ridge, tried).argmin()]
    return weights.to(measurements.dtype)


def _surprise(log_odds: Tensor, targets: Tensor, ridge: float, weights: Tensor) -> Tensor:
    """What logistic regression minimises, of several weights, each a row and a column of log odds."""
    losses = torch.nn.functional.softplus(log_odds) - targets.unsqueeze(-1) * log_odds
    return losses.sum(0) + ridge / 2 * weights.square().sum(-1)


def chances(measurements: Float[Tensor, "*C n d"], weights: Float[Tensor, " d"]) -> Float[Tensor, "*C n"]:
    """Probability of being right, by sample; its mean estimates accuracy, as CBPE's calibrated confidence does."""
    return (measurements @ weights).sigmoid()


def half_width(
    spread: Float[Tensor, "*C"], samples: Float[Tensor, "*C"], bias: Float[Tensor, "*C"], quantile: float
) -> Float[Tensor, "*C"]:
    """Half of an interval: chance over this many samples, and an error of the estimator that no number removes.
    quantile · √(spread² / n + bias²), with the standard deviations of one sample and of the estimator."""
    return quantile * (spread.square() / samples.clamp(min=1) + bias.square()).sqrt()


def cumulative_shortfall(before: Float[Tensor, ""], excesses: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Page's sum after n more samples: it takes each excess, and begins again at 0 wherever it would be negative."""
    sums = excesses.cumsum(-1)
    lowest = torch.minimum(-before, sums.amin(-1)) if len(excesses) else -before
    return (sums[-1] if len(excesses) else torch.zeros_like(before)) - lowest


def shortfall_limit(excesses: Float[Tensor, " m"], blocks_to_false_alarm: float) -> Float[Tensor, ""]:
    """What Page's sum of independent excesses, of samples or blocks of them, exceeds once in so many, at most.

    log N / θ, where E exp(θ · excess) = 1: then exp(θ · sum) is bounded by a martingale (Lorden, 1971; e-detectors:
    Shin, Ramdas and Rinaldo, 2023). Excesses must be negative on average. Few of them show no tail, or none above zero:
    θ is at most that of a normal law of their mean and variance, -2 mean / variance.
    """
    exact = excesses.double()
    # The greatest excess alone bounds θ: m exp(-θ · excess) = 1.
    low, high = torch.zeros_like(exact[0]), math.log(len(exact) + 1) / exact.amax().clamp_min(_SMALLEST_EXCESS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        grows = torch.logsumexp(middle * exact, -1) > math.log(len(exact))
        low, high = torch.where(grows, low, middle), torch.where(grows, middle, high)
    normal = 2 * exact.mean().abs() / exact.var().clamp_min(_SMALLEST_EXCESS**2)
    return (math.log(blocks_to_false_alarm) / torch.minimum(high, normal)).to(excesses.dtype)
