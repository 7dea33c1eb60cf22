"""What Fed-ADE+ promises, part by part."""

import numpy as np
import pytest
import torch
from research.small_network_shapes import SHAPES, trained
from research.small_networks import accuracy, held_out, streams
from torch import nn
from torch.func import vmap

from fedade.adapter.deploying import deploy
from fedade.core.network import PassCounter
from fedade.maths.priors.reweighting import reweight
from fedade.methods.fed_ade_plus.class_moments import layer_groups
from fedade.methods.fed_ade_plus.corrected_normalisation import corrected_pass, own_by_name
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.source import Source
from fedade.parts.priors import deployed_probabilities

from ...helpers import Seen, begin, context, final_world, mean, observe, predict, run
from ...parts.networks import with_body

OFF = {"correction": "none", "reweighting": False, "gradient_steps": False}


def observed(method, scenario, timestep=4, client=0):
    deployment = scenario.deployment
    inputs = scenario.streams.draw(np.array([client]), timestep).inputs[0]
    key = torch.tensor(7)
    shared, state = method.begin_server(deployment), begin(method, deployment)
    state, plan = observe(method, deployment, state, shared, Seen(inputs, torch.tensor(timestep), key))
    return deployment, inputs, shared, state, plan


def test_with_every_part_off_it_is_the_deployed_model(scenario_factory):
    method = FedAdePlus(**OFF)
    deployment, inputs, shared, state, _ = observed(method, scenario_factory(kind="both"))
    found = predict(method, deployment, state, shared, inputs)
    torch.testing.assert_close(found, deployed_probabilities(context(deployment, inputs)), atol=1e-5, rtol=1e-4)


def test_reweighting_alone_corrects_the_deployed_model_by_the_prior(scenario_factory):
    method = FedAdePlus(**{**OFF, "reweighting": True})
    deployment, inputs, shared, state, plan = observed(method, scenario_factory())
    expected = reweight(deployed_probabilities(context(deployment, inputs)), plan["prior"], deployment.mean_prediction)
    torch.testing.assert_close(predict(method, deployment, state, shared, inputs), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("correction", ["class-aware", "batch"])
def test_corrected_statistics_are_kept_for_predictions(scenario_factory, correction):
    method = FedAdePlus(correction=correction, gradient_steps=False)
    deployment, inputs, shared, state, plan = observed(method, scenario_factory(kind="covariate", samples=30))
    known = {**deployment.parameters, **own_by_name(deployment, {})}
    moved = [name for name, value in state.statistics.items() if not torch.equal(value, known[name])]
    assert moved
    assert 0 < plan["trust"] <= 1
    assert not torch.equal(
        predict(method, deployment, state, shared, inputs), deployed_probabilities(context(deployment, inputs))
    )


def test_corrupted_inputs_are_trusted_to_have_changed_more_than_clean_ones(scenario_factory):
    method = FedAdePlus(gradient_steps=False)
    trusts = [
        np.mean([
            float(observed(method, scenario_factory(kind=kind, samples=30), client=client)[-1]["trust"])
            for client in range(6)
        ])
        for kind in ("none", "label", "covariate")
    ]  # fmt: skip
    assert trusts[0] < trusts[2]
    assert trusts[1] < trusts[2]


def test_without_gradient_steps_nothing_travels(scenario_factory):
    rows = run(FedAdePlus(gradient_steps=False), scenario_factory())
    assert mean(rows, "bytes_sent") == 0
    assert mean(run(FedAdePlus(gradient_steps=True), scenario_factory()), "bytes_sent") > 0


def test_without_sharing_every_client_moves_a_body_of_its_own(scenario_factory):
    scenario = scenario_factory(kind="covariate")
    world = final_world(FedAdePlus(gradient_steps=True, share=False, rate={"low": 0.01, "high": 0.1}), scenario)
    bodies = {name: value for name, value in world.clients.own.items() if name.startswith("body.")}
    assert bodies
    assert any(not torch.allclose(value[0], value[1]) for value in bodies.values())
    assert mean(run(FedAdePlus(gradient_steps=True, share=False), scenario), "bytes_sent") == 0


def test_memory_can_be_switched_off(scenario_factory):
    scenario = scenario_factory(alpha=0.1, samples=30, schedule="squ")
    with_memory = final_world(FedAdePlus(gradient_steps=False), scenario).clients.regimes
    without = final_world(FedAdePlus(gradient_steps=False, track=False), scenario).clients.regimes
    assert (with_memory.counts > 0).sum() > (without.counts > 0).sum(), "more than what every batch begins with"


def moved_priors(scenario, allowance):
    """How far the priors found are from the source's, mean over clients and time."""
    source = scenario.deployment.source_prior.numpy()
    return np.mean([np.abs(step["prior"] - source).sum(-1) for step in run(FedAdePlus(allowance=allowance), scenario)])


def test_an_allowance_keeps_biased_predictions_on_corrupted_inputs_from_speaking_of_classes(scenario_factory):
    scenario = scenario_factory(kind="both", schedule="squ", num_timesteps=6, samples=40)
    assert moved_priors(scenario, 100.0) < moved_priors(scenario, 0.0) / 2


def test_where_inputs_did_not_change_nothing_is_allowed_for(scenario_factory):
    scenario = scenario_factory(kind="label", schedule="squ", num_timesteps=6, samples=40)
    assert 0.9 * moved_priors(scenario, 0.0) < moved_priors(scenario, 2.0)


def test_what_finite_batches_make_of_the_signal_can_be_left_out(scenario_factory):
    scenario = scenario_factory(kind="none", samples=8)
    signals = {
        debiased: float(observed(FedAdePlus(debiased=debiased), scenario)[-1]["s"]) for debiased in (False, True)
    }
    assert 0 <= signals[True] < signals[False]


def test_conditions_that_come_back_are_remembered(scenario_factory):
    scenario = scenario_factory(kind="covariate", schedule="squ", samples=30)
    assert layer_groups(scenario.deployment)[0].recognises
    residuals = final_world(FedAdePlus(conditions=3), scenario).clients.residuals[0]
    met = (residuals.samples > 0).sum(1)
    assert (met > 1).any()
    assert (met <= 3).all()


def test_the_second_pass_is_made_only_where_the_first_does_not_explain_the_batch(scenario_factory, monkeypatch):
    made = []

    def counted(*arguments):
        made.append(1)
        return corrected_pass(*arguments)

    monkeypatch.setattr("fedade.methods.fed_ade_plus.method.corrected_pass", counted)
    scenario = scenario_factory(kind="covariate", schedule="squ", samples=40)
    passes = {}
    for settled in (0.0, 1.0):
        made.clear()
        observed(FedAdePlus(settled=settled, doubt=0.5), scenario)
        passes[settled] = len(made)
    assert passes == {0.0: 2, 1.0: 1}


@pytest.mark.parametrize("settled", [0.0, 1.0])
def test_without_batch_norm_the_body_is_passed_once(scenario_factory, settled):
    scenario, counter = scenario_factory(kind="covariate", schedule="squ", samples=40), PassCounter()
    deployment = with_body(scenario.deployment, nn.GroupNorm(2, 4))
    method = FedAdePlus(settled=settled, doubt=0.5)
    state = begin(method, deployment)
    inputs = scenario.streams.draw(np.array([0]), 4).inputs[0]
    with torch.no_grad():
        observe(method, deployment.counting(counter), state, {}, Seen(inputs, torch.tensor(4), torch.tensor(7)))
    assert counter.passes == len(inputs)


def test_mapped_clients_keep_the_pass_that_one_alone_would_keep(scenario_factory):
    scenario = scenario_factory(kind="both", schedule="squ", samples=40)
    method, deployment = FedAdePlus(settled=0.2), scenario.deployment
    inputs = scenario.streams.draw(np.arange(2), 4).inputs
    begun = begin(method, deployment)

    def prior_of(images):
        return observe(method, deployment, begun, {}, Seen(images, torch.tensor(4), torch.tensor(7)))[1]["prior"]

    alone = torch.stack([prior_of(images) for images in inputs])
    torch.testing.assert_close(vmap(prior_of)(inputs), alone, atol=1e-4, rtol=1e-3)


def test_other_classes_are_not_taken_for_other_inputs_where_only_features_can_be_corrected():
    shape = SHAPES["MLP, LayerNorm"]
    task = shape.task(101)
    deployment = deploy(trained(shape, task, 101), held_out(task, 30), progress=False)
    stream = streams(task, "label", "squ", 101)
    deployed, adapted = (accuracy(method, deployment, stream) for method in (Source(), FedAdePlus()))
    assert adapted > deployed + 3
