"""Statistics of a batch, without what its classes explain."""

import numpy as np
import pytest
import torch
from torch import nn

from fedade.core.normalisation import batch_statistics
from fedade.methods.fed_ade_plus.corrected_normalisation import (
    PriorCorrected,
    at_most,
    corrected_pass,
    deployed_statistics,
    no_residuals,
    settled_pass,
)
from fedade.methods.fed_ade_plus.reference_moments import FEATURES, plain_layers, recognising_layers, reference_moments

from ...helpers import context
from ...parts.networks import with_body


@pytest.fixture
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", samples=30)


def batch(scenario, timestep: int = 4):
    return scenario.streams.draw(np.arange(1), timestep).inputs[0]


def test_every_layer_is_measured_and_plain_ones_come_first(scenario):
    moments = reference_moments(scenario.deployment)
    named = {name.removesuffix(".running_mean") for name in scenario.deployment.parameters if "running_mean" in name}
    assert set(moments) == named
    plain = plain_layers(scenario.deployment)
    assert plain <= set(moments)
    assert reference_moments(scenario.deployment) is moments


def test_no_layer_to_correct_is_the_deployed_model(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, frozenset(), 1.0)
    expected = deployment.network.logits(deployment.parameters, inputs)
    torch.testing.assert_close(found.logits, expected, atol=1e-5, rtol=1e-4)
    assert found.statistics == {}
    assert found.trust == 0


def test_without_doubt_the_first_layer_moves_as_far_as_the_batch_did(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    moments = reference_moments(deployment)
    seen = {}

    class Watching(PriorCorrected):
        def statistics(self, layer, inputs, deployed):
            seen.setdefault(layer, (batch_statistics(inputs), deployed))
            return super().statistics(layer, inputs, deployed)

    past = no_residuals(deployment)
    strategy = Watching(moments, deployment.source_prior, frozenset(moments), plain_layers(deployment), 0.0, past)
    deployment.network.represent(deployment.parameters, inputs, strategy)
    assert set(strategy.found) == set(moments)
    for layer, found in strategy.found.items():
        own, deployed = seen[layer]
        expected = deployed.mean + own.mean - deployment.source_prior @ moments[layer].first.means
        torch.testing.assert_close(found.mean, expected, atol=1e-4, rtol=1e-4)
        assert (found.variance >= 0.19 * deployed.variance).all()


def test_a_pass_can_be_repeated_with_what_it_found(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    layers = frozenset(reference_moments(deployment))
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1.0)
    assert found.statistics.keys() == deployed_statistics(deployment).keys()
    again = settled_pass(context(deployment, inputs), deployment.parameters, found.statistics, keeps_body=True)
    torch.testing.assert_close(again, found.logits, atol=1e-4, rtol=1e-3)


def test_great_doubt_keeps_the_deployed_statistics(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    layers = frozenset(reference_moments(deployment))
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1e9)
    for name, value in deployed_statistics(deployment).items():
        torch.testing.assert_close(found.statistics[name], value)


def test_features_are_corrected_where_there_is_no_batch_norm(scenario):
    deployment = with_body(scenario.deployment, nn.GroupNorm(2, 4))
    moments = reference_moments(deployment)
    assert set(moments) == {FEATURES}
    assert recognising_layers(deployment) == frozenset(), "the head reads classes from them, however noisy they are"
    assert {len(both.first.samples) for both in no_residuals(deployment, 3).values()} == {1}
    inputs, prior = batch(scenario), deployment.source_prior
    found = corrected_pass(deployment, deployment.parameters, inputs, prior, frozenset(moments), 0.0)
    features = deployment.network.represent(deployment.parameters, inputs)
    shift = features.mean(0) - prior @ moments[FEATURES].first.means
    mean = found.statistics[f"{FEATURES}.running_mean"]
    torch.testing.assert_close(mean, moments[FEATURES].first.means.mean(0) + shift, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found.features.mean(0), mean - shift, atol=1e-3, rtol=1e-2)
    again = settled_pass(context(deployment, inputs), deployment.parameters, found.statistics, keeps_body=True)
    torch.testing.assert_close(again, found.logits, atol=1e-4, rtol=1e-3)
    untouched = settled_pass(
        context(deployment, inputs), deployment.parameters, deployed_statistics(deployment), keeps_body=True
    )
    expected = deployment.network.classify(deployment.parameters, features)
    torch.testing.assert_close(untouched, expected, atol=1e-4, rtol=1e-3)


def test_residuals_are_remembered_as_far_as_they_may_count(scenario_factory):
    scenario = scenario_factory(kind="none", samples=30)
    deployment = scenario.deployment
    layers = frozenset(reference_moments(deployment))

    def after(batches: int, samples: float):
        past = no_residuals(deployment)
        for number in range(batches):
            inputs = scenario.streams.draw(np.arange(1), 4, f"batch {number}").inputs[0]
            found = corrected_pass(
                deployment, deployment.parameters, inputs, deployment.source_prior, layers, 3.0, at_most(past, samples)
            )
            past = found.residuals
        return found

    alone, forgetful, remembering = after(1, 0.0), after(4, 0.0), after(4, 400.0)
    assert all(float(both.first.samples) == 30 for found in (alone, forgetful) for both in found.residuals.values())
    *_, last_layer = remembering.residuals  # which knows what all layers before it saw
    assert float(remembering.residuals[last_layer].first.samples) > 60
    assert at_most(remembering.residuals, 50.0)[last_layer].first.samples == 50


def test_only_plain_layers_have_room_for_several_conditions(scenario):
    deployment = scenario.deployment
    plain = plain_layers(deployment)
    residuals = no_residuals(deployment, 3)
    assert {layer: len(both.first.samples) for layer, both in residuals.items()} == {
        layer: 3 if layer in plain else 1 for layer in residuals
    }
