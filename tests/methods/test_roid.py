"""What ROID alone promises."""

import pytest
import torch

from fedade.methods.roid import Roid, sample_weights, smoothed_frequencies, soft_likelihood_ratio
from fedade.parts.norm_layers import norm_affine

from ..helpers import observe, predict
from .adapting import after, batch


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate")


def test_without_steps_weights_return_by_a_hundredth(scenario):
    method, deployed = Roid(learning_rate=0), norm_affine(scenario.deployment, "roid")
    client, _ = after(method, scenario, 1)
    for name, value in deployed.items():
        torch.testing.assert_close(client.learner.own[name], value, atol=1e-6, rtol=0)
    away = {name: value + 1 for name, value in deployed.items()}
    moved, _ = observe(
        method, scenario.deployment, client._replace(learner=client.learner._replace(own=away)), (), batch(scenario)
    )
    for name, value in deployed.items():
        torch.testing.assert_close(moved.learner.own[name] - value, 0.99 * torch.ones_like(value))


def test_some_samples_are_kept_and_equal_ones_count_alike():
    answers = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)).softmax(-1)
    weights = sample_weights(answers, torch.full((5,), 0.2), 1 / 3)
    assert 0 < int((weights > 0).sum()) < 30
    assert torch.equal(sample_weights(answers[:1], torch.full((5,), 0.2), 1 / 3), torch.ones(1))


def test_the_likelihood_ratio_is_as_worked_out_by_hand():
    certain = torch.full((10,), -100.0).index_fill(0, torch.tensor(0), 100.0)
    found = soft_likelihood_ratio(torch.stack([torch.zeros(10), certain]))
    torch.testing.assert_close(found, torch.tensor([2.197, -4.549]), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("samples", "ratio"), [(10, 11.0), (50, 11.0), (1, 2.0)])
def test_frequencies_are_smoothed(samples, ratio):
    one_class = torch.zeros(samples, 10).index_fill(1, torch.tensor(3), 1.0)
    prior = smoothed_frequencies(one_class)
    assert float(prior.sum()) == pytest.approx(1)
    assert float(prior.max() / prior.min()) == pytest.approx(ratio, rel=1e-4)


def test_even_frequencies_change_no_answer(scenario):
    even = torch.full((8, 10), 0.1)
    assert torch.allclose(smoothed_frequencies(even), torch.full((10,), 0.1))
    client, _ = after(Roid(), scenario, 1)
    inputs = batch(scenario).inputs
    plain, corrected = (
        predict(Roid(correction=correction), scenario.deployment, client, (), inputs)
        for correction in ("none", "bayes")
    )
    assert not torch.allclose(plain, corrected)
