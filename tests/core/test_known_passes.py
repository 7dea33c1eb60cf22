"""Passes that scoring and observing have in common are made once, and nothing else changes."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from fedade.core.known_passes import remembered, remembering_passes
from fedade.core.normalisation import FROZEN, Mixed, Recording
from fedade.engine import steps
from fedade.methods import METHODS
from tests.helpers import run

QUICK = {"training_rounds": 2, "views": 2}


def build(name):
    fields = getattr(METHODS[name], "func", METHODS[name]).model_fields
    return METHODS[name](**{key: value for key, value in QUICK.items() if key in fields})


def passes_of_bodies(scenario, monkeypatch):
    """A list that grows with every pass through the body of a network."""
    made = []
    module = type(scenario.deployment.network.body)
    forward = module.forward
    monkeypatch.setattr(module, "forward", lambda self, inputs: (made.append(len(inputs)), forward(self, inputs))[1])
    return made


@pytest.mark.parametrize("name", ["source", "prior-em", "flh-ftl", "oracle-prior"])
def test_one_pass_where_the_network_stays(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    made = passes_of_bodies(scenario, monkeypatch)
    method = build(name)
    began = len(made)
    run(method, scenario, vectorised=False)
    own = [samples for samples in made[began:] if samples == scenario.streams.draw(np.arange(1), 1).inputs.shape[1]]
    assert len(own) == 3 * 2


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_run_is_the_same_with_every_pass_made_anew(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    once = run(build(name), scenario, vectorised=False)
    monkeypatch.setattr(steps, "remembering_passes", nullcontext)
    anew = run(build(name), scenario, vectorised=False)
    for rows, others in zip(once, anew, strict=True):
        for column, values in rows.items():
            np.testing.assert_array_equal(values, others[column], err_msg=column)


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
