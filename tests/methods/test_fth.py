from dataclasses import replace

import numpy as np
import pytest
import torch

from fedade.core.scenario import Scenario
from fedade.maths.priors.estimators import confusion_matrix
from fedade.methods.fth import Fth
from fedade.methods.prior_reweighting import OraclePrior
from fedade.methods.source import Source
from fedade.parts.priors import deployed_probabilities

from ..helpers import context, final_world, mean, run


def at(scenario: Scenario, schedule: np.ndarray) -> Scenario:
    """The scenario under another schedule, `[T + 1]`, common to all clients."""
    streams = scenario.streams
    common = np.broadcast_to(schedule, (streams.num_clients, streams.num_timesteps + 1))
    return replace(scenario, streams=replace(streams, schedule=common))


@pytest.fixture(scope="module")
def stationary(scenario_factory) -> Scenario:
    """Every client stays at a prior of its own, and the confusion matrix is that of the streamed images."""
    scenario = scenario_factory(num_clients=20, num_timesteps=24, samples=30)
    steps = scenario.streams.num_timesteps
    unshifted = at(scenario, np.zeros(steps + 1))
    batches = [unshifted.streams.draw(np.arange(20), step) for step in range(1, steps + 1)]
    inputs, labels = (
        torch.cat([getattr(batch, name).flatten(0, 1) for batch in batches]) for name in ("inputs", "labels")
    )
    exact = confusion_matrix(deployed_probabilities(context(scenario.deployment, inputs)), labels)
    return at(replace(scenario, deployment=replace(scenario.deployment, confusion=exact)), np.ones(steps + 1))


def test_on_a_stationary_prior_it_comes_within_a_point_of_the_true_prior(stationary):
    oracle, fth, source = (run(method, stationary)[12:] for method in (OraclePrior(), Fth(), Source()))
    assert abs(mean(fth, "accuracy_pre") - mean(oracle, "accuracy_pre")) < 0.01
    assert mean(fth, "accuracy_pre") > mean(source, "accuracy_pre") + 0.03


def test_its_estimate_sharpens_with_the_history(stationary):
    rows = run(Fth(), stationary)
    errors = [np.abs(step["prior"] - step["true_prior"]).sum(-1).mean() for step in rows]
    assert errors[-1] < 0.5 * errors[0]


def test_with_a_history_it_is_never_more_than_a_point_below_the_deployed_model(stationary):
    unshifted = at(stationary, np.zeros(stationary.streams.num_timesteps + 1))
    for scenario in (stationary, unshifted):
        fth, source = (run(method, scenario)[12:] for method in (Fth(), Source()))
        assert mean(fth, "accuracy_pre") > mean(source, "accuracy_pre") - 0.01


def test_a_window_of_one_batch_forgets_what_the_whole_history_remembers(scenario_factory):
    change = at(scenario_factory(num_clients=8, num_timesteps=6, samples=30), np.array([0, 1, 1, 1, 1, 0, 0]))
    late = {
        window: np.abs(rows[-1]["prior"] - rows[-1]["true_prior"]).sum(-1).mean()
        for window in (1, None)
        for rows in [run(Fth(window=window), change)]
    }
    assert late[1] < late[None]


def test_a_window_that_is_never_full_is_the_whole_history(scenario_factory):
    scenario = scenario_factory()
    everything, window = (final_world(method, scenario).clients.prior for method in (Fth(), Fth(window=100)))
    torch.testing.assert_close(everything, window, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(everything, final_world(Fth(window=2), scenario).clients.prior, atol=1e-3)
