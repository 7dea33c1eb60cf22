"""What DELTA alone promises."""

import pytest
import torch
from torch.func import grad

from fedade.core.normalisation import Statistics, batch_statistics
from fedade.methods.delta import Delta, even_weights
from fedade.methods.tent import Tent
from fedade.parts.running_norms import EPSILON, Renormalised

from ..helpers import predict
from .adapting import after, batch


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", samples=50)


def test_the_first_batch_takes_tents_step(scenario):
    ours, theirs = after(Delta(), scenario, 1)[0].learner.own, after(Tent(), scenario, 1)[0].own
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, atol=1e-5, rtol=1e-4)
    second, others = after(Delta(), scenario, 1, 2)[0].learner.own, after(Tent(), scenario, 1, 2)[0].own
    assert any(not torch.allclose(second[name], value, atol=1e-5) for name, value in others.items())


def test_values_are_those_of_the_running_statistics_and_slopes_those_of_the_batch():
    inputs = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    known = Statistics(torch.full((3,), 0.4, dtype=torch.float64), torch.full((3,), 2.0, dtype=torch.float64))

    def normalised(images: torch.Tensor) -> torch.Tensor:
        norms = Renormalised({"layer": known}, torch.tensor(False))
        mean, variance = norms.statistics("layer", images, batch_statistics(images))
        return (images - mean[:, None, None]) / (variance + EPSILON).sqrt()[:, None, None]

    torch.testing.assert_close(normalised(inputs), (inputs - 0.4) / 2**0.5, atol=1e-12, rtol=0)
    slopes = grad(lambda images: (normalised(images) ** 3).sum())(inputs)
    torch.testing.assert_close(slopes.sum((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-9, rtol=0)


def test_classes_that_came_often_count_less():
    answers = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    torch.testing.assert_close(even_weights(answers, torch.tensor([0.9, 0.1])), torch.tensor([0.2, 1.8]))
    assert torch.equal(even_weights(answers, torch.tensor([0.5, 0.5])), torch.ones(2))


def test_after_the_first_batch_answers_do_not_depend_on_their_batch(scenario):
    client, _ = after(Delta(), scenario, 1, 2)
    assert float(client.frequencies.sum()) == pytest.approx(1, abs=1e-5)
    inputs = batch(scenario).inputs
    whole = predict(Delta(), scenario.deployment, client, (), inputs)
    alone = torch.cat([predict(Delta(), scenario.deployment, client, (), inputs[row : row + 1]) for row in range(9)])
    torch.testing.assert_close(whole[:9], alone, atol=1e-4, rtol=1e-3)


def test_small_batches_begin_with_the_deployed_statistics(scenario_factory):
    small = scenario_factory(kind="covariate", samples=10)
    slow = after(Delta(statistics_memory=1.0), small, 1)[0].known
    for layer, found in slow.items():
        assert torch.equal(found.mean, small.deployment.parameters[f"{layer}.running_mean"])
