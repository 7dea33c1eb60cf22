"""Theorem th:regretbound where its assumptions hold: convex losses, label shift, projected gradient descent on F̂."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from fedade.theory.equations.regret_bound import (
    BoundConstants,
    BoundTerms,
    bound_terms,
    dynamic_regret,
    l1_path_length,
    smallest_singular_value,
)

from ..maths.samples import generator

LAWS = torch.tensor([[0.88, 0.06, 0.06], [0.06, 0.88, 0.06], [0.06, 0.06, 0.88]]).double()
"""P(x | y): three inputs, of which each is mostly of its own class."""
CONFUSION = LAWS.mT
"""A deployed model that predicts the input's own class."""
PRIORS = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]).double()
SAMPLES, STEPS, DIAMETER = 10, 4000, 4.0


def class_risks(logits: Tensor) -> Tensor:
    """F^{0,i} of logits by input `[..., 3, 3]`, which are all parameters there are: convex."""
    return -(LAWS * logits.log_softmax(-1).mT).sum(-1)


def gradient(logits: Tensor, prior: Tensor) -> Tensor:
    """Of Σ_i q_i F^{0,i}."""
    weights = prior.unsqueeze(-1) * LAWS
    return (weights.sum(0).unsqueeze(-1) * logits.softmax(-1)) - weights.mT


def projected(logits: Tensor) -> Tensor:
    """The nearest point of the ball of diameter Γ."""
    return logits * min(1.0, DIAMETER / 2 / float(logits.norm()))


@cache
def best_risk(law: int) -> float:
    """min F within the ball, by many exact steps."""
    logits, prior = torch.zeros(3, 3).double(), PRIORS[law]
    for _ in range(3000):
        logits = projected(logits - gradient(logits, prior))
    return float(prior @ class_risks(logits))


def run(changes: int, rate: float, direction: float = 1.0) -> tuple[float, BoundTerms]:
    """Regret of gradient descent on F̂ while the prior jumps, and the bound with V^L1."""
    when = torch.arange(STEPS + 1) * (changes + 1) // (STEPS + 1) % 2
    priors, random = PRIORS[when], generator(changes)
    inverse, logits, losses = torch.linalg.inv(CONFUSION), torch.zeros(3, 3).double(), []
    for prior in priors[1:]:
        losses.append(prior @ class_risks(logits))
        drawn = torch.multinomial(prior @ LAWS, SAMPLES, replacement=True, generator=random)
        estimated = inverse @ torch.bincount(drawn, minlength=3).double() / SAMPLES
        logits = projected(logits - direction * rate * gradient(logits, estimated))
    best = torch.tensor([best_risk(law) for law in range(len(PRIORS))]).double()[when[1:]]
    regret = dynamic_regret(torch.stack(losses), best, torch.ones(STEPS).double())
    constants = BoundConstants(
        num_classes=3,
        gradient_norm=math.sqrt(2),  # of softmax − one-hot
        loss=math.log(3) + math.sqrt(2) * DIAMETER / 2,  # no two logits differ by more than √2 times the norm
        radius=DIAMETER,
        singular_value=smallest_singular_value(CONFUSION),
        variation=float(l1_path_length(priors)),
        num_timesteps=STEPS,
    )
    return float(regret), bound_terms(constants, rate)


@pytest.mark.parametrize("changes", [0, 40])
@pytest.mark.parametrize("rate", [0.005, 0.1])
def test_regret_is_below_the_bound(changes, rate):
    regret, terms = run(changes, rate)
    assert 0 < regret <= terms.total


def test_who_ascends_is_above_the_bound():
    """The bound is wide, but it does tell a learner from what is none."""
    regret, terms = run(0, 0.02, direction=-1.0)
    assert regret > terms.total
