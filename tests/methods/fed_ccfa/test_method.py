from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.tree import repeat
from fedade.methods.fed_ccfa.method import FedCcfa, FedCcfaUplink

from ...helpers import begin, final_world, local_round, observe
from ..checks import RATE, first_batches, of_client, unlabelled

CLASSES, WIDTH, CLIENTS = 10, 128, 6


def planted(deployment, counts):
    """Uplinks of two groups of three, whose classifiers point elsewhere in classes 0 to 4 only."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(CLASSES, WIDTH, generator=generator).expand(CLIENTS, -1, -1)
    other = common.clone()
    other[3:, :5] = torch.randn(5, WIDTH, generator=generator)
    weight = other + 0.05 * torch.randn(CLIENTS, CLASSES, WIDTH, generator=generator)
    classifier = {"head.weight": weight, "head.bias": torch.zeros(CLIENTS, CLASSES)}
    body = repeat(FedCcfa().begin_server(deployment), CLIENTS)
    return FedCcfaUplink(body, classifier, classifier, weight, counts)


def test_two_planted_groups_are_found_class_by_class_and_kept_apart(scenario_factory):
    deployment = scenario_factory().deployment
    method = FedCcfa()
    uplinks = planted(deployment, torch.full((CLIENTS, CLASSES), 3.0))
    _, told = method.aggregate(deployment, method.begin_server(deployment), uplinks, torch.ones(CLIENTS))
    rows, sent = told.classifier["head.weight"], uplinks.classifier["head.weight"]
    for group in (slice(0, 3), slice(3, 6)):
        torch.testing.assert_close(rows[group, :5], sent[group, :5].mean(0).expand(3, -1, -1))
        torch.testing.assert_close(told.anchors[group, :5], sent[group, :5].mean(0).expand(3, -1, -1))
    torch.testing.assert_close(rows[:, 5:], sent[:, 5:].mean(0).expand(CLIENTS, -1, -1))


def test_who_has_too_few_samples_of_a_class_keeps_its_row_and_spoils_no_mean(scenario_factory):
    deployment = scenario_factory().deployment
    method, counts = FedCcfa(), torch.full((CLIENTS, CLASSES), 3.0)
    counts[0, 7], counts[:4, 8] = 2.0, 0.0
    uplinks = planted(deployment, counts)
    _, told = method.aggregate(deployment, method.begin_server(deployment), uplinks, torch.ones(CLIENTS))
    rows, sent = told.classifier["head.weight"], uplinks.classifier["head.weight"]
    torch.testing.assert_close(rows[0, 7], sent[0, 7])
    torch.testing.assert_close(rows[1, 7], sent[1:, 7].mean(0))
    torch.testing.assert_close(rows[:, 8], sent[:, 8])  # two clients have no third party to be compared with
    assert told.known[:, 8].tolist() == [False] * 4 + [True] * 2


def test_clients_of_different_concepts_end_with_different_classifiers(scenario_factory):
    """Three clients call classes 0 and 1 by each other's names; only those rows must part."""
    scenario = scenario_factory(kind="none", num_clients=CLIENTS, samples=120)
    deployment = scenario.deployment
    method = FedCcfa(labels="oracle", classifier_rate=0.1, body_rate=0.01, balanced_epochs=20)
    seen, shared = first_batches(scenario), method.begin_server(deployment)
    swapped = torch.tensor([1, 0, *range(2, CLASSES)])[seen.labels]
    apart = torch.arange(CLIENTS).unsqueeze(-1) >= 3
    seen = seen._replace(labels=torch.where(apart, swapped, seen.labels))
    client = begin(method, deployment)
    _, uplinks = vmap(lambda looked: _local_round(method, deployment, client, shared, looked))(seen)
    _, told = method.aggregate(deployment, shared, uplinks, torch.ones(CLIENTS))
    from_first = (told.classifier["head.weight"] - told.classifier["head.weight"][:1]).abs().amax(-1)
    assert (from_first[3:, :2] > 1e-4).all()
    assert (from_first[:3] < 1e-6).all()
    assert (from_first[3:, 2:] < 1e-6).all()


def _local_round(method, deployment, client, shared, looked):
    _, plan = observe(method, deployment, client, shared, looked)
    after, _, uplink = local_round(method, deployment, client, plan, shared, looked, looked.key)
    return after, uplink


def test_alignment_draws_features_to_their_anchors(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    deployment = scenario.deployment
    looked = of_client(first_batches(scenario, timestep=2), 0)
    generator = torch.Generator().manual_seed(1)
    similarity = {}
    for strength in (0.1, 1e6):
        method = FedCcfa(labels="oracle", rate=RATE, alignment_scale=strength)
        shared = method.begin_server(deployment)
        client = begin(method, deployment)
        anchors = torch.rand(client.anchors.shape, generator=generator.manual_seed(1))
        client = client._replace(anchors=anchors, known=torch.ones_like(client.known))
        _, uplink = _local_round(method, deployment, client, shared, looked)
        features = deployment.network.represent({**deployment.parameters, **uplink.body}, looked.inputs)
        chosen = torch.nn.functional.cosine_similarity(features, anchors[looked.labels], dim=-1)
        others = torch.nn.functional.cosine_similarity(features.unsqueeze(1), anchors, dim=-1).mean(-1)
        similarity[strength] = float((chosen - others).mean())
    assert similarity[0.1] > similarity[1e6] + 0.01


def test_labels_come_from_the_corrected_posterior_and_unsure_samples_are_left_out(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    deployment, looked = scenario.deployment, unlabelled(of_client(first_batches(scenario), 0))
    shares = []
    for confidence in (0.0, 0.7, 1.0):
        method = FedCcfa(confidence=confidence)
        client, shared = begin(method, deployment), method.begin_server(deployment)
        _, plan = observe(method, deployment, client, shared, looked)
        _, _, uplink = local_round(method, deployment, client, plan, shared, looked, torch.tensor(0))
        shares.append(float(plan["trusted"]))
        assert float(uplink.counts.sum()) == pytest.approx(shares[-1] * len(looked.inputs))
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)


def test_bodies_are_common_and_classifiers_personal(scenario_factory):
    world = final_world(FedCcfa(rate=RATE), scenario_factory(num_clients=4, num_timesteps=2))
    assert all(name.startswith("body.") and "running" not in name for name in world.server)
    assert world.clients.classifier["head.weight"].shape == (4, CLASSES, WIDTH)


def test_a_head_that_is_not_linear_is_refused(scenario_factory):
    deployment = scenario_factory().deployment
    bent = Network("bent", deployment.network.body, nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Softplus()))
    with pytest.raises(FedadeError, match="whose last layer is linear"):
        begin(FedCcfa(), replace(deployment, network=bent, parameters=bent.initial_parameters()))
