"""Statistics of a batch, without what its classes explain."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedade.core import tree
from fedade.core.normalisation import batch_statistics
from fedade.methods.fed_ade_plus import class_moments as measuring
from fedade.methods.fed_ade_plus.class_moments import (
    FEATURES,
    ClassMoments,
    LayerGroup,
    believed,
    class_moments,
    expected_under,
    explained_share,
    layer_groups,
    plain_layers,
    reference_moments,
)
from fedade.methods.fed_ade_plus.conditions import Residual
from fedade.methods.fed_ade_plus.corrected_normalisation import (
    at_most,
    corrected_pass,
    deployed_statistics,
    kept_pass,
    no_residuals,
    settled_pass,
)
from fedade.methods.fed_ade_plus.layer_statistics import PriorCorrected, known_before
from fedade.methods.fed_ade_plus.own_statistics import JUDGED_BY

from ...helpers import context
from ...maths.samples import QUICK
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


def test_the_more_classes_the_more_of_a_sample_they_may_explain(scenario, monkeypatch):
    """A batch mixes classes, so that its mean moves the less by them the more there are."""
    moments = reference_moments(scenario.deployment)
    least = min(float(explained_share(both)[0]) for both in moments.values())
    monkeypatch.setattr(measuring, "PLAIN_SHARE", least)
    monkeypatch.setattr(measuring, "SHARE_DOUBT", 0.0)
    assert plain_layers(scenario.deployment) == frozenset()
    assert plain_layers(replace(scenario.deployment, source_prior=torch.full((1000,), 1e-3))) == set(moments)


def test_no_layer_to_correct_is_the_deployed_model(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, frozenset(), 1.0, ())
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

    groups = tuple(zip(layer_groups(deployment), no_residuals(deployment), strict=True))
    strategy = Watching(groups, deployment.source_prior, frozenset(moments), len(inputs), 0.0)
    deployment.network.represent(deployment.parameters, inputs, strategy)
    assert set(strategy.found) == set(moments)
    for layer, found in strategy.found.items():
        own, deployed = seen[layer]
        expected = deployed.mean + own.mean - deployment.source_prior @ moments[layer].means[0]
        torch.testing.assert_close(found.mean, expected, atol=1e-4, rtol=1e-4)
        assert (found.variance >= 0.19 * deployed.variance).all()


def test_a_pass_can_be_repeated_with_what_it_found(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    layers = frozenset(reference_moments(deployment))
    past = no_residuals(deployment)
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1.0, past)
    assert found.statistics.keys() == deployed_statistics(deployment).keys()
    again = settled_pass(context(deployment, inputs), deployment.parameters, found.statistics, keeps_body=True)
    torch.testing.assert_close(again, found.logits, atol=1e-4, rtol=1e-3)


def test_great_doubt_keeps_the_deployed_statistics(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    layers = frozenset(reference_moments(deployment))
    past = no_residuals(deployment)
    found = corrected_pass(deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1e9, past)
    for name, value in deployed_statistics(deployment).items():
        assert torch.equal(found.statistics[name], value), "to the last bit: nothing moved"


def test_other_classes_than_were_forecast_are_no_change_of_inputs(scenario_factory):
    """Classes may come in runs: after batches of one class those of another must not be normalised into the first."""
    scenario = scenario_factory(kind="label", samples=30)
    deployment, streams = scenario.deployment, scenario.streams
    plain, past = plain_layers(deployment), no_residuals(deployment, 3)
    images = streams.pool_at("", 0)
    trusts = {"forecast": [], "found": [], "corrupted": []}
    for expected in range(deployment.num_classes):
        prior = torch.eye(deployment.num_classes)[expected]
        inputs = images[torch.from_numpy(streams.rows_by_class[(expected + 1) % deployment.num_classes][:30])]
        for case, shown in (("forecast", inputs), ("found", inputs), ("corrupted", 255 - inputs)):
            found = corrected_pass(
                deployment, deployment.parameters, shown, prior, plain, 2.0, past, forecast=case != "found"
            )
            assert (found.residuals is past) == (case != "found"), "of a forecast nothing is remembered"
            trusts[case].append(float(found.trust))
    assert max(trusts["forecast"]) == 0
    assert np.mean(trusts["found"]) > 0.02
    assert min(trusts["corrupted"]) > 0.1


@QUICK
@given(st.integers(0, 1000))
def test_a_batch_is_worth_the_fewer_samples_the_purer_its_forecast_and_the_farther_its_classes(seed):
    generator = torch.Generator().manual_seed(seed)
    classes, channels = 4, {"near": 3, "far": 5}
    means = torch.randn(2, classes, 8, generator=generator) * torch.tensor([0.1] * 3 + [1.0] * 5)
    moments = ClassMoments(means, torch.ones(2, 8), torch.full((classes,), 0.02))
    group = LayerGroup(channels, moments, torch.tensor([0] * 3 + [1] * 5), True)
    past, flat = Residual(torch.zeros(1, 2, 8), torch.zeros(1, 2, 2)), torch.full((classes,), 1 / classes)

    def worth(share):
        prior = share * torch.eye(classes)[0] + (1 - share) * flat
        known = known_before(group, past, prior, 50, evenness=1 / classes)
        return torch.stack([known[layer].counted.squeeze(-1) for layer in channels])

    flat_worth, mixed, pure = worth(0.0), worth(0.5), worth(1.0)
    torch.testing.assert_close(flat_worth, torch.full((2, 2), 50.0))
    assert (pure < mixed).all()
    assert (mixed < 50).all()
    assert (pure[1] < pure[0]).all()
    found = known_before(group, past, torch.eye(classes)[0], 50)
    assert all((found[layer].counted == 50).all() for layer in channels), "a prior that the batch was asked for"


def test_the_class_mix_of_a_small_batch_is_known_from_those_before_too():
    """Or else a layer that tells classes apart would be corrected the less the fewer samples come at once, however well
    its condition is known."""
    moments = ClassMoments(torch.randn(2, 4, 3), torch.ones(2, 3), torch.full((4,), 0.02))
    group = LayerGroup({"layer": 3}, moments, torch.zeros(3, dtype=torch.int64), False)
    past, prior = Residual(torch.zeros(1, 2, 3), torch.full((1, 2, 1), 200.0)), torch.full((4,), 0.25)
    unsure = {
        samples: known_before(group, past, prior, samples)["layer"].expected.uncertainty
        for samples in (1, 10, JUDGED_BY, 2 * JUDGED_BY)
    }
    assert torch.equal(unsure[1], unsure[JUDGED_BY])
    assert torch.equal(unsure[10], unsure[JUDGED_BY])
    assert (unsure[2 * JUDGED_BY] < unsure[JUDGED_BY]).all()


def test_features_are_corrected_where_there_is_no_batch_norm(scenario):
    deployment = with_body(scenario.deployment, nn.GroupNorm(2, 4))
    moments = reference_moments(deployment)
    assert set(moments) == {FEATURES}
    (group,), (past,) = layer_groups(deployment), no_residuals(deployment, 3)
    assert not group.recognises, "the head reads classes from them, however noisy they are"
    assert len(past.samples) == 1
    inputs, prior = batch(scenario), deployment.source_prior
    found = corrected_pass(deployment, deployment.parameters, inputs, prior, frozenset(moments), 0.0, (past,))
    features = deployment.network.represent(deployment.parameters, inputs)
    shift = features.mean(0) - prior @ moments[FEATURES].means[0]
    mean = found.statistics[f"{FEATURES}.running_mean"]
    torch.testing.assert_close(mean, moments[FEATURES].means[0].mean(0) + shift, atol=1e-4, rtol=1e-3)
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
    assert all((past.samples == 30).all() for found in (alone, forgetful) for past in found.residuals)
    last = remembering.residuals[-1].samples[..., -1]  # of the last layer, which knows what all before it saw
    assert (last > 60).all()
    assert (at_most(remembering.residuals, 50.0)[-1].samples[..., -1] == 50).all()


def test_only_plain_layers_have_room_for_several_conditions(scenario):
    deployment = scenario.deployment
    plain = plain_layers(deployment)
    groups, residuals = layer_groups(deployment), no_residuals(deployment, 3)
    assert {
        layer: len(past.samples) for group, past in zip(groups, residuals, strict=True) for layer in group.channels
    } == {layer: 3 if layer in plain else 1 for layer in reference_moments(deployment)}


def test_a_pass_that_is_kept_is_the_one_with_another_prior_where_nothing_moves(scenario):
    deployment, inputs = scenario.deployment, batch(scenario)
    everywhere, past = frozenset(reference_moments(deployment)), no_residuals(deployment, 3)
    priors = deployment.source_prior, torch.arange(1.0, deployment.num_classes + 1).softmax(-1)
    for doubt in (1e9, 0.5):
        first, made = (
            corrected_pass(deployment, deployment.parameters, inputs, prior, layers, doubt, past)
            for prior, layers in zip(priors, (plain_layers(deployment), everywhere), strict=True)
        )
        kept = kept_pass(first, deployment, priors[1], everywhere, doubt, past)
        same = (torch.equal(*pair) for pair in zip(tree.leaves(kept[:-1]), tree.leaves(made[:-1]), strict=True))
        assert all(same) == (kept.trust == 0) == (doubt == 1e9)


def test_a_channel_that_never_moved_proves_nothing_of_its_layer():
    values = torch.randn(2, 60, 4, generator=torch.Generator().manual_seed(0))
    values[..., 0] = 0.0
    labels = torch.arange(60) % 3
    moments = class_moments(values, labels, 3)
    expected = expected_under(torch.full((3,), 1 / 3), moments)
    moved = Residual(torch.tensor([0.3, 0.0, 0.0, 0.0]).expand(1, 2, 4), torch.full((1, 2, 1), 50.0))
    assert (believed(moved, expected, 2.0).trust < 0.99).all()
