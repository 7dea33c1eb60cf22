"""A pass whose result is known is not made again, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedade.checking.checks import OtherStreams
from fedade.core.context import ClientContext
from fedade.core.network import PassCounter
from fedade.core.normalisation import FROZEN, Mixed
from fedade.core.scenario import Scenario
from fedade.methods import METHODS
from fedade.scenarios.pools import PIECE
from tests.helpers import QUICKER, context, quick, run


def without_features(scenario: Scenario) -> Scenario:
    """The same, whose streams do not know features."""
    return replace(scenario, streams=OtherStreams(scenario.streams, drawn=lambda batch: batch._replace(features=None)))


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
    plain = without_features(scenario)
    made = passes_of_bodies(scenario, monkeypatch)
    run(quick(name, QUICKER), plain, vectorised=False)
    assert made.count(scenario.streams.settings.samples) == 3 * 2


@pytest.mark.parametrize("name", FROZEN_METHODS)
def test_no_example_is_passed_twice_by_the_deployed_body(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=3, num_timesteps=3)
    made = passes_of_bodies(scenario, monkeypatch)
    run(quick(name, QUICKER), scenario, vectorised=False)
    first = len(made)
    assert set(made) == {PIECE["cpu"]}
    run(quick(name, QUICKER), scenario, vectorised=False)
    assert len(made) == first, "the second run draws the same"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_passes_grow_with_time_unless_the_body_is_kept(scenario_factory, monkeypatch, name):
    """What a card says of the body decides how clients are run, so it must be true."""
    method, counts = quick(name, QUICKER), []
    made = passes_of_bodies(scenario_factory(), monkeypatch)
    for timesteps in (1, 2):
        scenario = scenario_factory(num_clients=2, num_timesteps=timesteps)
        run(quick("source"), scenario)  # from here on the features of all that is streamed are known
        began = len(made)
        run(method, scenario)
        counts.append(len(made) - began)
    assert (counts[0] == counts[1]) == method.card.keeps_body


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_say_whether_they_read_deployed_features(scenario_factory, monkeypatch, name):
    """Streams compute features for those who say so, and for nobody else."""
    scenario, method, read = scenario_factory(num_clients=1, num_timesteps=2), quick(name, QUICKER), []
    features = ClientContext.deployed_features
    monkeypatch.setattr(
        ClientContext, "deployed_features", lambda ctx, how=FROZEN: (read.append(how), features(ctx, how))[1]
    )
    run(method, scenario)
    assert (FROZEN in read) == method.reads_deployed_features(scenario.deployment)


@pytest.mark.parametrize("name", ["uda", "unida", "fed-pseudo", "fed-ade", "cotta", "bn-adapt"])
def test_scoring_and_observing_share_a_pass(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=1, num_timesteps=1)
    plain = without_features(scenario)
    method, features, asked, made = quick(name, QUICKER), ClientContext._features, [], []

    def watched(ctx, whose, model, normalisation):
        known = (whose, normalisation) in ctx.passes
        (asked if known else made).append(whose)
        return features(ctx, whose, model, normalisation)

    monkeypatch.setattr(ClientContext, "_features", watched)
    run(method, plain, vectorised=False, participation=0.01)
    assert asked == {"uda": [], "bn-adapt": ["deployed"]}.get(name, ["own"])


def test_who_changes_inputs_is_not_given_the_features_of_others(scenario_factory):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    inverting = OtherStreams(scenario.streams, drawn=lambda batch: batch.with_inputs(255 - batch.inputs))
    inverted = replace(scenario, streams=inverting)
    assert inverted.streams.draw(np.arange(3), 1).features is None
    right, other = (run(quick("source"), known) for known in (scenario, inverted))
    assert np.mean([rows["accuracy_post"].mean() for rows in other]) < np.mean(
        [rows["accuracy_post"].mean() for rows in right]
    )


def test_features_belong_to_their_deployment(scenario_factory):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    moved = {name: 1.1 * value for name, value in scenario.deployment.parameters.items()}
    for deployment in (scenario.deployment, replace(scenario.deployment, parameters=moved)):
        batch = scenario.streams.draw(np.arange(3), 2)
        expected = [deployment.network.represent(deployment.parameters, inputs) for inputs in batch.inputs]
        torch.testing.assert_close(batch.features(deployment), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["label", "both"])
def test_features_are_those_of_the_images(scenario_factory, kind):
    scenario = scenario_factory(num_clients=8, num_timesteps=4, kind=kind)
    deployment = scenario.deployment
    for timestep, clients in ((1, np.arange(8)), (4, np.arange(8)), (3, np.array([5, 2]))):
        batch = scenario.streams.draw(clients, timestep)
        expected = [deployment.network.represent(deployment.parameters, inputs) for inputs in batch.inputs]
        torch.testing.assert_close(batch.features(deployment), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_run_is_the_same_with_every_pass_made_anew(scenario_factory, monkeypatch, name):
    scenario = scenario_factory(num_clients=2, num_timesteps=2)
    once = run(quick(name, QUICKER), scenario, vectorised=False)
    monkeypatch.setattr(
        ClientContext,
        "_features",
        lambda ctx, whose, model, how: ctx.deployment.network.represent(model, ctx.inputs, how),
    )
    anew = run(quick(name, QUICKER), scenario, vectorised=False)
    for rows, others in zip(once, anew, strict=True):
        for column, values in rows.items():
            np.testing.assert_allclose(values, others[column], rtol=1e-3, atol=1e-5, err_msg=column)


@pytest.fixture
def batch(scenario_factory) -> ClientContext:
    deployment = scenario_factory().deployment
    return context(deployment, deployment.reference.inputs[:7])


@torch.no_grad()
def test_a_context_tells_passes_apart_by_whose_they_are_and_by_their_statistics(batch):
    deployed, mixed = batch.deployed_features(), batch.deployed_features(Mixed(0.5))
    own = batch.own_features({name: 2 * value for name, value in batch.deployment.parameters.items()})
    assert batch.deployed_features() is deployed
    assert batch.deployed_features(Mixed(0.5)) is mixed
    assert not torch.equal(deployed, mixed)
    assert not torch.equal(deployed, own)


@torch.no_grad()
def test_after_observing_the_updated_pass_is_the_own_one(batch):
    parameters = batch.deployment.parameters
    deployed, before, updated = (
        batch.deployed_features(),
        batch.own_features(parameters),
        batch.updated_features(parameters),
    )
    after = batch.after_observing()
    assert after.deployed_features() is deployed
    assert after.own_features(parameters) is updated
    assert batch.own_features(parameters) is before


@torch.no_grad()
def test_a_context_is_for_one_state_and_one_batch(batch):
    parameters = batch.deployment.parameters
    batch.own_features(parameters)
    with pytest.raises(ValueError, match="another state or batch"):
        batch.own_features({name: value.clone() for name, value in parameters.items()})
    with pytest.raises(ValueError, match="another state or batch"):
        replace(batch, inputs=batch.inputs[:3]).own_features(parameters)


def test_training_passes_are_always_made(batch):
    with torch.enable_grad():
        assert batch.deployed_features() is not batch.deployed_features()
    assert not batch.passes


@torch.no_grad()
def test_a_known_pass_counts_as_one_that_a_client_would_make(batch):
    counter = PassCounter()
    counted = replace(batch, deployment=batch.deployment.counting(counter))
    for _ in range(3):
        counted.deployed_features()
    assert counter.passes == 3 * 7
    counted.deployment.reference_features  # noqa: B018 - it counts
    counted.deployment.reference_features  # noqa: B018
    assert counter.passes == 3 * 7 + 2 * len(batch.reference.inputs)
    batch.deployed_features()
    assert counter.passes == 3 * 7 + 2 * len(batch.reference.inputs), "who scores is not counted"
