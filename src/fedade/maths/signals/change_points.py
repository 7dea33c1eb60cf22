"""Bayesian online change-point detection (Adams and MacKay, 2007), with run lengths up to a cap.

A batch belongs to the new segment when the run length is 0; only so does its probability depend on the data, because
with the other convention it equals the hazard at every step. Slot r describes a segment of r + 1 batches, the last
slot one of at least as many. Axes: R slots, K classes, p directions.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

FIRST_SHAPE = 1.0
"""a of the inverse gamma prior: at 0.1 its tails are too heavy to notice a change."""


class ClassRuns(NamedTuple):
    """Segments of class counts: the posterior of the run length, and the counts of each run."""

    mass: Float[Tensor, " R"]
    counts: Float[Tensor, "R K"]


class FeatureRuns(NamedTuple):
    """Segments of projected features: the posterior of the run length, and each run's normal-inverse-gamma."""

    mass: Float[Tensor, " R"]
    batches: Float[Tensor, " R"]
    mean: Float[Tensor, "R p"]
    spread: Float[Tensor, "R p"]


def first_class_run(counts: Float[Tensor, " K"], slots: int) -> ClassRuns:
    """A segment that has seen these counts, for certain."""
    return ClassRuns(_certain(counts, slots), counts.expand(slots, -1).clone())


def first_feature_run(mean: Float[Tensor, " p"], slots: int) -> FeatureRuns:
    """A segment that has seen one batch with this mean, for certain."""
    means = mean.expand(slots, -1).clone()
    return FeatureRuns(_certain(mean, slots), torch.ones_like(means[:, 0]), means, torch.ones_like(means))


def follow_classes(runs: ClassRuns, counts: Float[Tensor, " K"], hazard: float) -> tuple[ClassRuns, Float[Tensor, ""]]:
    """After a batch with these (fractional) counts: the new posterior, and the probability of a new segment. Counts are
    multinomial with a flat Dirichlet prior, α = 1 per class."""
    fresh = _log_dirichlet_multinomial(torch.zeros_like(counts), counts)
    posterior = _posterior(runs.mass, fresh, _log_dirichlet_multinomial(runs.counts, counts), hazard)
    grown = _capped(posterior, torch.cat([counts[None], runs.counts + counts]))
    return ClassRuns(_capped_mass(posterior), grown), posterior[0]


def follow_features(
    runs: FeatureRuns, value: Float[Tensor, " p"], precision: float, hazard: float
) -> tuple[FeatureRuns, Float[Tensor, ""]]:
    """After a batch whose mean has this value, in units of its own noise: the new posterior and P(new segment).
    Directions are independent and normal with the conjugate prior m = 0, κ = `precision`, a = 1, b = 1 (Murphy,
    2007)."""
    blank = torch.zeros_like(value)
    batches = torch.cat([torch.zeros_like(runs.batches[:1]), runs.batches])
    mean = torch.cat([blank[None], runs.mean])
    spread = torch.cat([torch.ones_like(blank)[None], runs.spread])
    strength, shape = (precision + batches)[:, None], (FIRST_SHAPE + batches / 2)[:, None]
    scale = spread * (strength + 1) / (shape * strength)
    likelihoods = _log_student(value, 2 * shape, mean, scale).sum(-1)
    posterior = _posterior(runs.mass, likelihoods[0], likelihoods[1:], hazard)
    return FeatureRuns(
        _capped_mass(posterior),
        _capped(posterior, batches + 1),
        _capped(posterior, (strength * mean + value) / (strength + 1)),
        _capped(posterior, spread + strength * (value - mean).square() / (2 * (strength + 1))),
    ), posterior[0]


def _certain(like: Tensor, slots: int) -> Tensor:
    return torch.cat([torch.ones(1).to(like), torch.zeros(slots - 1).to(like)])


def _posterior(mass: Tensor, fresh: Tensor, grown: Tensor, hazard: float) -> Tensor:
    """P(r) after a batch, `[R + 1]`, from its log-likelihoods in a new segment and in each run."""
    starts = (math.log(hazard) + fresh + mass.sum().log())[None]
    continues = math.log1p(-hazard) + grown + mass.log()
    return torch.cat([starts, continues]).softmax(0)


def _capped_mass(posterior: Tensor) -> Tensor:
    return torch.cat([posterior[:-2], posterior[-2:].sum()[None]])


def _capped(posterior: Tensor, statistics: Tensor) -> Tensor:
    """The two longest runs become one, which keeps the statistics of the likelier."""
    longest = torch.where(posterior[-1] > posterior[-2], statistics[-1], statistics[-2])
    return torch.cat([statistics[:-2], longest[None]])


def _log_dirichlet_multinomial(seen: Tensor, counts: Tensor) -> Tensor:
    """lnΓ(A) - lnΓ(A + n) + Σ(lnΓ(α + k) - lnΓ(α)) with α = 1 + seen, up to a constant of the counts."""
    concentration = 1 + seen
    total = concentration.sum(-1)
    per_class = torch.lgamma(concentration + counts) - torch.lgamma(concentration)
    return torch.lgamma(total) - torch.lgamma(total + counts.sum()) + per_class.sum(-1)


def _log_student(value: Tensor, freedom: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """Density of Student's t with a squared scale, up to a constant."""
    normaliser = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2) - (freedom * scale).log() / 2
    return normaliser - (freedom + 1) / 2 * torch.log1p((value - location).square() / (freedom * scale))
