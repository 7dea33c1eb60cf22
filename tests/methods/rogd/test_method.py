from dataclasses import replace

import numpy as np
import pytest
import torch

from fedade.methods.rogd import Rogd, class_error_slopes
from fedade.methods.source import Source
from fedade.parts.priors import deployed_probabilities

from ...helpers import begin, context, final_world, mean, run


@pytest.fixture(scope="module")
def stationary(scenario_factory):
    """Every client stays at its target prior."""
    scenario = scenario_factory(num_clients=8, num_timesteps=12, samples=30)
    return replace(scenario, streams=replace(scenario.streams, schedule=np.ones((8, 13))))


def test_descending_the_estimated_error_raises_accuracy_over_time(stationary):
    rows, unadapted = run(Rogd(horizon=12), stationary), run(Source(), stationary)
    gains = [
        mean([one], "accuracy_pre") - mean([other], "accuracy_pre") for one, other in zip(rows, unadapted, strict=True)
    ]
    assert gains[0] == pytest.approx(0)
    assert np.mean(gains[6:]) > 0.01


def test_the_first_step_is_along_the_closed_form_gradient(stationary):
    deployment = stationary.deployment
    slopes = class_error_slopes(
        deployed_probabilities(context(deployment, deployment.reference.inputs)),
        deployment.reference.labels,
        deployment.source_prior,
        deployment.source_prior,
    )
    method = Rogd(learning_rate=1e-3)
    start = begin(method, deployment)
    first = replace(stationary, streams=replace(stationary.streams, settings=_one_timestep(stationary)))
    moved, prior = final_world(method, first).clients.weights, run(method, first)[0]["prior"]
    gradient = torch.from_numpy(prior) @ slopes
    expected = start.weights - 1e-3 * (gradient - gradient.mean(-1, keepdim=True))
    torch.testing.assert_close(moved, expected, atol=1e-6, rtol=1e-4)


def test_a_longer_horizon_takes_shorter_steps(stationary):
    short, long = (begin(Rogd(horizon=steps), stationary.deployment).learning_rate for steps in (25, 100))
    assert float(short) == pytest.approx(2 * float(long))


def test_weights_stay_above_the_floor(stationary):
    weights = final_world(Rogd(learning_rate=1.0), stationary).clients.weights
    assert weights.min() >= 0.01 - 1e-6
    assert weights.max() > 0.5


def _one_timestep(scenario):
    return scenario.streams.settings.model_copy(update={"num_timesteps": 1})
