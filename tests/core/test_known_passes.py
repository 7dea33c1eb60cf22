"""Passes that scoring and observing have in common are made once, and nothing else changes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedade.core import network
from fedade.core.known_passes import remembered, remembering_passes
from fedade.core.normalisation import FROZEN, Mixed, Recording
from fedade.core.scenario import Batch, Streams
from fedade.methods import METHODS
from fedade.scenarios.pool_features import PIECE
from tests.helpers import run

QUICK = {"training_rounds": 2, "views": 2}


def build(name):
    fields = getattr(METHODS[name], "func", METHODS[name]).model_fields
    return METHODS[name](**{key: value for key, value in QUICK.items() if key in fields})


@dataclass(frozen=True)
class Plain:
    """Streams that do not know features."""

    streams: Streams

    def __getattr__(self, name):
        return getattr(self.streams, name)

    def draw(self, clients, timestep, purpose="stream") -> Batch:
        return self.streams.draw(clients, timestep, purpose)._replace(known=None)


class Inverted(Plain):
    """Streams that change the inputs of others."""

    def draw(self, clients, timestep, purpose="stream") -> Batch:
        batch = self.streams.draw(clients, timestep, purpose)
        return batch._replace(inputs=255 - batch.inputs)


def passes_of_bodies(scenario, monkeypatch):
    """A list that grows with every pass through the body of a network."""
    made = []
    module = type(scenario.deployment.network.body)
    forward = module.forward
    monkeypatch.setattr(module, "forward", lambda self, inputs: (made.append(len(inputs)), forward(self, inputs))[1])
    return made


FROZEN_METHODS = ("source", "prior-em", "flh-ftl", "oracle-prior")


@pytest.mark.parametrize("name", FROZEN_METHODS)
def test_one_pass_a_timestep_where_the_network_stays(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    plain = replace(scenario, streams=Plain(scenario.streams))
    made = passes_of_bodies(scenario, monkeypatch)
    run(build(name), plain, vectorised=False)
    assert made.count(scenario.streams.settings.samples) == 3 * 2


@pytest.mark.parametrize("name", FROZEN_METHODS)
def test_no_example_is_passed_twice_by_the_deployed_body(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=3)
    made = passes_of_bodies(scenario, monkeypatch)
    run(build(name), scenario, vectorised=False)
    first = len(made)
    assert set(made) == {PIECE["cpu"]}
    run(build(name), scenario, vectorised=False)
    assert len(made) == first, "the second run draws the same"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_passes_grow_with_time_unless_the_body_is_kept(scenario_factory, monkeypatch, name):
    """What a card says of the body decides how clients are run, so it must be true."""
    method, counts = build(name), []
    made = passes_of_bodies(scenario_factory(), monkeypatch)
    for timesteps in (2, 4):
        scenario = scenario_factory(num_clients=3, num_timesteps=timesteps)
        run(method, scenario)  # from here on the features of all that is streamed are known
        began = len(made)
        run(method, scenario)
        counts.append(len(made) - began)
    assert (counts[0] == counts[1]) == method.card.keeps_body


@pytest.mark.parametrize(("name", "times"), [("source", 3), ("fed-ade", 3), ("tent", 1)])
def test_features_are_only_asked_for_while_they_are_recalled(scenario_factory, monkeypatch, name, times):
    scenario = scenario_factory(num_clients=3, num_timesteps=3)
    asked, features = [], Batch.features
    monkeypatch.setattr(Batch, "features", lambda *told: (asked.append(told), features(*told))[1])
    run(build(name), scenario)
    assert len(asked) == times


def test_who_changes_inputs_is_not_given_the_features_of_others(scenario_factory):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    inverted = replace(scenario, streams=Inverted(scenario.streams))
    assert inverted.streams.draw(np.arange(3), 1).features(scenario.deployment) == ()
    right, other = (run(build("source"), one) for one in (scenario, inverted))
    assert np.mean([rows["accuracy_post"].mean() for rows in other]) < np.mean(
        [rows["accuracy_post"].mean() for rows in right]
    )


def test_features_belong_to_their_deployment(scenario_factory):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    moved = {name: 1.1 * value for name, value in scenario.deployment.parameters.items()}
    for deployment in (scenario.deployment, replace(scenario.deployment, parameters=moved)):
        batch = scenario.streams.draw(np.arange(3), 2)
        expected = [deployment.network.represent(deployment.parameters, one) for one in batch.inputs]
        torch.testing.assert_close(batch.features(deployment), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["label", "both"])
def test_features_are_those_of_the_images(scenario_factory, kind):
    scenario = scenario_factory(num_clients=8, num_timesteps=4, kind=kind)
    deployment = scenario.deployment
    for timestep, clients in ((1, np.arange(8)), (4, np.arange(8)), (3, np.array([5, 2]))):
        batch = scenario.streams.draw(clients, timestep)
        expected = [deployment.network.represent(deployment.parameters, one) for one in batch.inputs]
        torch.testing.assert_close(batch.features(deployment), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_run_is_the_same_with_every_pass_made_anew(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    once = run(build(name), scenario, vectorised=False)
    monkeypatch.setattr(network, "remembered", lambda tensors, normalisation, compute: compute())
    anew = run(build(name), scenario, vectorised=False)
    for rows, others in zip(once, anew, strict=True):
        for column, values in rows.items():
            np.testing.assert_allclose(values, others[column], rtol=1e-3, atol=1e-5, err_msg=column)


def test_what_is_remembered_is_of_the_same_tensors_and_normalisation():
    weights, inputs = torch.ones(2), torch.ones(3)
    with torch.no_grad(), remembering_passes():
        first = remembered((weights, inputs), FROZEN, lambda: torch.zeros(1))
        assert remembered((weights, inputs), FROZEN, lambda: torch.ones(1)) is first
        for others in ((weights.clone(), inputs), (weights, inputs.clone())):
            assert remembered(others, FROZEN, lambda: torch.ones(1)) == 1
        mixed = remembered((weights, inputs), Mixed(0.5), lambda: torch.full((1,), 2.0))
        assert remembered((weights, inputs), Mixed(0.5), lambda: torch.ones(1)) is mixed
        assert remembered((weights, inputs), Mixed(0.6), lambda: torch.ones(1)) == 1


def test_training_and_recording_passes_are_always_made():
    tensors = (torch.ones(2),)
    with remembering_passes():
        for normalisation, enabled in ((FROZEN, True), (Recording(), False)):
            with torch.set_grad_enabled(enabled):
                remembered(tensors, normalisation, lambda: torch.zeros(1))
                assert remembered(tensors, normalisation, lambda: torch.ones(1)) == 1


def test_nothing_is_remembered_outside():
    tensors = (torch.ones(2),)
    with torch.no_grad():
        remembered(tensors, FROZEN, lambda: torch.zeros(1))
        assert remembered(tensors, FROZEN, lambda: torch.ones(1)) == 1
