from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedade.core.deployment import Reference
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.normalisation import RecordingStatistics
from fedade.methods.atp import Atp, _correction, _direction, _stepped
from fedade.methods.source import Source

from ..helpers import Seen, begin, observe, run
from .checks import assert_close, assert_finite_on_one_sample, assert_maps_agree, first_batches, of_client, unlabelled

SHORT = {"training_rounds": 5, "source_clients": 4, "rate_of_rates": 0.1}


def test_a_correction_descends_the_labelled_loss_of_the_adapted_model(scenario_factory):
    deployment = scenario_factory().deployment
    inputs, labels = (part[:20] for part in deployment.reference)
    direction = _direction(deployment, inputs)
    with torch.enable_grad():
        rates = {name: torch.tensor(0.01, requires_grad=True) for name in direction}
        moved = _stepped(deployment, rates, direction)
        cross_entropy(deployment.network.logits({**deployment.parameters, **moved}, inputs), labels).backward()
    expected = {name: -rate.grad / direction[name].numel() ** 0.5 for name, rate in rates.items()}
    found = _correction(deployment, {name: rate.detach() for name, rate in rates.items()}, inputs, labels)
    assert_close(found, expected)
    assert any("running_mean" in name for name in found)
    assert any("running_var" in name for name in found)


def test_learned_rates_lower_the_loss_of_clients_with_few_classes(scenario_factory):
    deployment = scenario_factory().deployment
    client = begin(Atp(training_rounds=60), deployment)
    inputs, labels = deployment.reference
    before, after = [], []
    for pair in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)):
        rows = (labels == pair[0]) | (labels == pair[1])
        seen = Seen(inputs[rows], torch.tensor(1), torch.tensor(0))
        moved = observe(Atp(), deployment, client, (), seen)[0].own
        for losses, model in ((before, deployment.parameters), (after, {**deployment.parameters, **moved})):
            losses.append(float(cross_entropy(deployment.network.logits(model, inputs[rows]), labels[rows])))
    assert sum(after) < 0.99 * sum(before)


def test_without_training_nothing_moves(scenario_factory):
    scenario = scenario_factory(num_clients=3, num_timesteps=2)
    for still, source in zip(run(Atp(training_rounds=0), scenario), run(Source(), scenario), strict=True):
        assert (still["accuracy_post"] == source["accuracy_post"]).all()


def test_rates_belong_to_modules_and_differ_between_them(scenario_factory):
    deployment = scenario_factory().deployment
    rates = begin(Atp(**SHORT), deployment).rates
    assert set(rates) == set(deployment.parameters)
    assert all(rate.shape == () and rate.isfinite() for rate in rates.values())
    assert len({float(rate) for rate in rates.values()}) > len(rates) / 2


def test_batch_restarts_and_online_averages_over_all_batches(scenario_factory):
    scenario = scenario_factory(num_clients=2, num_timesteps=3)
    deployment = scenario.deployment
    learned = begin(Atp(**SHORT), deployment)
    batches = [unlabelled(of_client(first_batches(scenario, timestep), 0)) for timestep in (1, 2, 3)]
    restarts = [observe(Atp(), deployment, learned, (), seen)[0].own for seen in batches]
    restarted = online = learned
    for seen in batches:
        restarted, _ = observe(Atp(), deployment, restarted, (), seen)
        online, _ = observe(Atp(memory="online"), deployment, online, (), seen)
    assert_close(restarted.own, restarts[-1])
    assert_close(online.own, {name: sum(one[name] for one in restarts) / 3 for name in restarts[0]})


def test_a_network_without_batch_norm_has_rates_for_its_parameters(scenario_factory):
    deployment = scenario_factory().deployment
    plain = Network("plain", nn.Flatten(), nn.Linear(64, 10))
    bare = replace(
        deployment,
        network=plain,
        parameters=plain.initial_parameters(),
        reference=Reference(torch.rand(30, 1, 8, 8), torch.arange(30) % 10),
    )
    with pytest.warns(RuntimeWarning, match="atp: model 'plain' has no BatchNorm"):
        assert set(begin(Atp(**SHORT), bare).rates) == {"head.weight", "head.bias"}


def test_variances_stay_non_negative_whatever_the_rate(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    client = begin(Atp(**SHORT), scenario.deployment)
    wild = client._replace(rates={name: torch.tensor(50.0) for name in client.rates})
    seen = unlabelled(of_client(first_batches(scenario), 0))
    adapted, _ = observe(Atp(), scenario.deployment, wild, (), seen)
    assert all((value >= 0).all() for name, value in adapted.own.items() if "running_var" in name)


def test_both_client_maps_agree(scenario_factory):
    scenario = scenario_factory(num_clients=4, num_timesteps=2)
    assert_maps_agree(Atp(memory="online", **SHORT), scenario)


def test_one_sample_is_enough(scenario_factory):
    assert_finite_on_one_sample(Atp(memory="online", **SHORT), scenario_factory)


def test_a_rate_of_one_replaces_deployed_statistics_by_the_batch_ones(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    client = begin(Atp(training_rounds=0), scenario.deployment)
    first = "body.1.1"
    whole = {
        name: torch.ones_like(rate) if name.startswith(f"{first}.running") else rate
        for name, rate in client.rates.items()
    }
    seen = unlabelled(of_client(first_batches(scenario), 0))
    adapted, _ = observe(Atp(), scenario.deployment, client._replace(rates=whole), (), seen)
    recording = RecordingStatistics()
    scenario.deployment.network.represent(scenario.deployment.parameters, seen.inputs, recording)
    torch.testing.assert_close(adapted.own[f"{first}.running_mean"], recording.seen[first].mean)
    torch.testing.assert_close(adapted.own[f"{first}.running_var"], recording.seen[first].variance)


def test_rates_that_diverge_are_refused(scenario_factory):
    with pytest.raises(FedadeError, match="rates diverged"):
        begin(Atp(training_rounds=6, rate_of_rates=1e6), scenario_factory().deployment)
