"""Class priors that come, stay, drift and come back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from fedade.methods.fed_ade_plus import regimes

from ...maths.samples import QUICK

CLASSES = 5
FLAT = torch.full((CLASSES,), 1 / CLASSES)
RARE = torch.tensor([0.85, 0.1, 0.03, 0.01, 0.01])
OTHER = torch.tensor([0.01, 0.01, 0.03, 0.1, 0.85])
KEEP = torch.tensor(0.9)


def batch(prior: torch.Tensor, seed: int, samples: int = 60, sure: float = 3.0) -> torch.Tensor:
    """Calibrated predictions of samples from a law: noisy logits of the true class, by Bayes' rule."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(prior, samples, replacement=True, generator=generator)
    signal = torch.randn(samples, len(prior), generator=generator)
    signal[torch.arange(samples), labels] += sure
    return (sure * signal).softmax(-1)


def follow(laws: list[torch.Tensor], seed: int = 0) -> list[regimes.Reading]:
    """The readings of a client that meets a sequence of laws."""
    known, found = regimes.no_regimes(3, FLAT), []
    for step, law in enumerate(laws):
        probabilities = batch(law, 1000 * seed + step)
        found.append(regimes.read(known, probabilities, FLAT, FLAT))
        known = regimes.learn(known, found[-1], len(probabilities), KEEP)
    return found


def distance(prior: torch.Tensor, truth: torch.Tensor) -> float:
    return float((prior - truth).abs().sum())


@QUICK
@given(st.integers(0, 300))
def test_everything_stays_a_distribution(seed):
    known = regimes.no_regimes(2, FLAT)
    for step in range(4):
        law = (RARE, FLAT, OTHER, RARE)[step]
        reading = regimes.read(known, batch(law, seed + step, samples=7), FLAT, FLAT)
        known = regimes.learn(known, reading, 7, torch.tensor(0.5))
        for one in (reading.prior, reading.weights, known.weights, *known.means, regimes.forecast(known, FLAT)):
            torch.testing.assert_close(one.sum(), torch.tensor(1.0))
            assert (one >= 0).all()
        assert (known.counts >= 0).all()


@QUICK
@given(st.integers(0, 100))
def test_without_a_shift_the_prior_stays_at_the_source(seed):
    found = follow([FLAT] * 6, seed)
    assert sum(distance(reading.prior, FLAT) for reading in found) / 6 < 0.12


@QUICK
@given(st.integers(0, 100))
def test_a_jump_is_followed_at_once_and_the_source_is_never_forgotten(seed):
    found = follow([FLAT, FLAT, RARE, RARE, OTHER, FLAT], seed)
    assert distance(found[2].prior, RARE) < 0.5 < distance(FLAT, RARE)
    assert found[2].weights[-1] > 0.5
    assert distance(found[5].prior, FLAT) < 0.2


@pytest.mark.parametrize("samples", [60, 2000])
def test_a_mean_prediction_from_few_samples_makes_no_shift_of_large_batches(samples):
    classes, held_out = 40, 200
    flat = torch.full((classes,), 1 / classes)
    usual = batch(flat, 9, held_out, sure=2.0).mean(0)
    allowance = regimes.chance(torch.tensor(float(held_out)), classes)
    known = regimes.no_regimes(3, flat)
    for step in range(4):
        probabilities = batch(flat, 10 + step, samples, sure=2.0)
        reading = regimes.read(known, probabilities, usual, flat, allowance)
        known = regimes.learn(known, reading, samples, KEEP)
    assert reading.weights[-2] > 0.9
    rare = torch.cat([RARE, torch.zeros(classes - len(RARE))])
    jumped = regimes.read(known, batch(rare, 20, samples, sure=2.0), usual, flat, allowance)
    assert jumped.weights[-2] < 0.1
    assert distance(jumped.prior, rare) < 0.5 < distance(flat, rare)


def test_a_bias_within_the_allowance_is_no_shift():
    def prior(law: torch.Tensor, allowance: float) -> torch.Tensor:
        known = regimes.no_regimes(3, FLAT)
        for step in range(6):
            reading = regimes.read(known, batch(law, step), FLAT, FLAT, allowance)
            known = regimes.learn(known, reading, 60, KEEP)
        return reading.prior

    biased = torch.tensor([0.32, 0.22, 0.18, 0.15, 0.13])
    assert distance(prior(biased, 0.0), biased) < 0.2
    assert distance(prior(biased, 0.2), FLAT) < 0.1
    assert distance(prior(RARE, 0.2), RARE) < 0.3


def test_batches_smaller_than_the_number_of_classes_leave_no_gaps(monkeypatch):
    law = torch.linspace(0.2, 1.8, 60) / 60
    flat = torch.full_like(law, 1 / 60)

    def learnt(own_counts: float) -> torch.Tensor:
        monkeypatch.setattr(regimes, "OWN_COUNTS", own_counts)
        known = regimes.no_regimes(1, flat)
        for step in range(30):
            reading = regimes.read(known, batch(law, step, samples=40), flat, flat)
            known = regimes.learn(known, reading, 40, KEEP)
        return reading.prior

    jeffreys, bare = (distance(learnt(own_counts), law) for own_counts in (regimes.OWN_COUNTS, 0.02))
    assert jeffreys < distance(flat, law)
    assert jeffreys < bare


def test_a_regime_that_returns_is_recognised():
    laws = [RARE, RARE, RARE, OTHER, OTHER, RARE]
    returned = torch.stack([follow(laws, seed)[-1].weights for seed in range(30)])
    assert returned[:, :3].sum(-1).mean() > 0.6


def test_what_is_remembered_makes_the_next_estimate_better():
    fresh = [distance(follow([RARE], seed)[-1].prior, RARE) for seed in range(30)]
    later = [distance(follow([RARE] * 6, seed)[-1].prior, RARE) for seed in range(30)]
    assert sum(later) < 0.8 * sum(fresh)


def test_the_forecast_is_the_regime_of_the_last_batch():
    known = regimes.no_regimes(3, FLAT)
    torch.testing.assert_close(regimes.forecast(known, FLAT), FLAT)
    reading = regimes.read(known, batch(RARE, 1), FLAT, FLAT)
    known = regimes.learn(known, reading, 60, KEEP)
    assert distance(regimes.forecast(known, FLAT), RARE) < 0.5


def test_clients_can_be_batched():
    batches = torch.stack([batch(law, 7) for law in (FLAT, RARE, OTHER)])
    start = regimes.no_regimes(3, FLAT)

    def one(probabilities: torch.Tensor) -> tuple[regimes.Reading, regimes.Regimes]:
        reading = regimes.read(start, probabilities, FLAT, FLAT)
        return reading, regimes.learn(start, reading, 60, KEEP)

    together = vmap(one)(batches)
    for row, alone in enumerate(map(one, batches)):
        for found, expected in zip((*together[0], *together[1]), (*alone[0], *alone[1]), strict=True):
            torch.testing.assert_close(found[row], expected)
