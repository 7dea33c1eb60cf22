"""A class prior that is tracked as a few regimes, which come, stay, drift and come back.

A client's classes may drift slowly, jump, and jump back. A moving average is late after a jump, a batch alone is noisy,
and both forget what returns. Here a client remembers a few regimes, each a class distribution with a number of samples
behind it. The candidates for a batch are these, the source prior, which is never forgotten, and a new regime. Their
weights follow from how well they explain the batch's predictions, and the prior of the batch is estimated around them.

Axes: n samples, K classes, M regimes.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.maths.losses import entropy
from fedade.maths.priors.estimators import class_likelihoods, posterior_modes

STAY, BEGIN = 0.9, 0.02
"""Chances that a client is in the same regime as at the last timestep, and in a new one; else it is in any known."""
NEW_COUNTS = 2.0
"""Samples of the source prior that a new regime starts from."""
OWN_COUNTS = 0.5
"""Samples per class of what was known before that a batch's own estimate starts from (Jeffreys, 1946)."""
SOURCE_COUNTS = 2000.0
"""Samples behind the source prior."""
MOST_COUNTS = 200.0
"""Samples that a regime counts for at most, so that it can still drift."""
ITERATIONS = 20
"""Iterations of expectation-maximisation."""


class Regimes(NamedTuple):
    """What a client remembers: M (K + 1) + M + 1 floats."""

    means: Float[Tensor, "M K"]
    counts: Float[Tensor, " M"]
    """Samples behind each regime; 0 where there is none yet."""
    weights: Float[Tensor, " M+1"]
    """Which of them the last batch was in; the last entry is the source prior."""


class Reading(NamedTuple):
    """What a batch says."""

    prior: Float[Tensor, " K"]
    own: Float[Tensor, " K"]
    """The batch's own estimate, with as little of what was known before as it can do with: what regimes learn from,
    lest they learn from themselves."""
    weights: Float[Tensor, " M+2"]
    """Weights of the regimes, the source prior and a new regime."""


def no_regimes(number: int, source_prior: Float[Tensor, " K"]) -> Regimes:
    """Before the first batch only the source prior is known: as it is, and as a regime that may drift away from it."""
    places = source_prior.new_zeros(number + 1)
    weights = (_at(places, -number - 1) + _at(places, -1)) / 2
    counts = MOST_COUNTS * _at(places[:-1], -number)
    return Regimes(source_prior.expand(number, -1).clone(), counts, weights)


def forecast(regimes: Regimes, source_prior: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """The class prior of the next batch, before it is seen."""
    return regimes.weights @ torch.cat([regimes.means, source_prior.unsqueeze(0)])


def chance(held_out: Tensor | None, num_classes: int) -> Tensor | float:
    """By how many nats a sample some prior explains data of the source better on average, because the mean prediction
    is known from m held-out samples alone: (K - 1) / 2m (Wilks, 1938). Of a large batch that is much."""
    return 0.0 if held_out is None else (num_classes - 1) / (2 * held_out)


def read(
    regimes: Regimes,
    probabilities: Float[Tensor, "n K"],
    source_mean_prediction: Float[Tensor, " K"],
    source_prior: Float[Tensor, " K"],
    allowance: Float[Tensor, ""] | float = 0.0,
) -> Reading:
    """The regimes' weights by Bayes' rule, and the batch's prior by MAP with their samples as pseudo-counts.

    The likelihood of a prior q is Π_i Σ_k q_k p_ik / μ0_k (Saerens et al., 2002). A new regime is the batch's own
    maximum, which pays ½ K_eff log n for its free parameters (Schwarz, 1978), K_eff being exp of its entropy. Other
    priors than the source's must explain each sample better by `allowance` nats: as much as predictions may be biased,
    and the source's mean prediction wrong.
    """
    likelihoods = class_likelihoods(probabilities, source_mean_prediction)
    fresh = posterior_modes(likelihoods, NEW_COUNTS * source_prior.unsqueeze(-1), ITERATIONS).squeeze(-1)
    candidates = torch.cat([regimes.means, source_prior.unsqueeze(0), fresh.unsqueeze(0)])
    ratios = probabilities / source_mean_prediction.clamp(min=torch.finfo(probabilities.dtype).eps)
    evidence = (ratios @ candidates.mT).clamp(min=torch.finfo(ratios.dtype).tiny).log().sum(0)
    price = entropy(fresh).exp() / 2 * math.log(max(2, len(probabilities)))
    bias = allowance * len(probabilities)
    known, source, new = torch.split(_expected(regimes).log() + evidence, [len(regimes.counts), 1, 1])
    weights = torch.cat([known, source + bias, new - price]).softmax(-1)
    counts = torch.cat([
        regimes.counts.clamp(max=MOST_COUNTS), fresh.new_full((1,), SOURCE_COUNTS), fresh.new_full((1,), NEW_COUNTS)
    ])  # fmt: skip
    centres = torch.cat([regimes.means, source_prior.expand(2, -1)])
    counted = (weights * counts) @ centres, OWN_COUNTS * len(source_prior) * (weights @ centres)
    prior, own = posterior_modes(likelihoods, torch.stack(counted, -1), ITERATIONS).unbind(-1)
    return Reading(prior, own, weights)


def learn(regimes: Regimes, reading: Reading, samples: int, retention: Float[Tensor, ""]) -> Regimes:
    """Every regime takes its share of the batch, and keeps `retention` of its past as far as it was met. A new regime
    replaces the one with the fewest samples."""
    number = len(regimes.counts)
    met, new = reading.weights[:number], reading.weights[-1]
    kept = regimes.counts * (1 - (1 - retention) * met)
    counts = kept + met * samples
    means = (kept.unsqueeze(-1) * regimes.means + (met * samples).unsqueeze(-1) * reading.own) / counts.clamp(
        min=torch.finfo(counts.dtype).eps
    ).unsqueeze(-1)
    places = torch.arange(number, device=counts.device)
    replaced = (places == regimes.counts.argmin()) & (new > 0.5)
    weights = torch.where(replaced, new, met)
    weights = torch.cat([weights, reading.weights[number : number + 1]])
    return Regimes(
        torch.where(replaced.unsqueeze(-1), reading.own, torch.where(counts.unsqueeze(-1) > 0, means, regimes.means)),
        torch.where(replaced, float(samples), counts),
        weights / weights.sum(),
    )


def _expected(regimes: Regimes) -> Tensor:
    """Chances of the regimes, the source prior and a new regime before the batch is seen."""
    known = torch.cat([(regimes.counts > 0).to(regimes.weights.dtype), regimes.weights.new_ones(1)])
    old = STAY * regimes.weights + (1 - STAY - BEGIN) * known / known.sum()
    return torch.cat([known * old, regimes.weights.new_full((1,), BEGIN)])


def _at(like: Tensor, place: int) -> Tensor:
    """One at a place, counted from the end, and zero elsewhere."""
    return (torch.arange(-len(like), 0, device=like.device) == place).to(like.dtype)
