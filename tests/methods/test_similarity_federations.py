"""What FedCTTA and pFedBBN alone promise: who is averaged with whom."""

import pytest
import torch

from fedade.core import tree
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.fed_ctta import FedCtta
from fedade.methods.pfed_bbn import PfedBbn

from ..helpers import begin, equal, final_world, local_round
from .adapting import after, batch


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="both")


def uplink(method, scenario, *timesteps: int):
    client, plan = after(method, scenario, *timesteps)
    return local_round(method, scenario.deployment, client, plan, {}, batch(scenario), torch.tensor(1))[2]


@pytest.mark.parametrize("method", [FedCtta(), PfedBbn()], ids=["fed-ctta", "pfed-bbn"])
def test_equal_clients_change_nothing(method, scenario):
    sent = uplink(method, scenario, 1)
    _, told = method.aggregate(scenario.deployment, {}, tree.stack([sent, sent, sent]), torch.ones(3))
    expected = (sent.own, sent.statistics) if isinstance(method, FedCtta) else sent.own
    for found, value in zip(tree.leaves(tree.take(told, 1)), tree.leaves(expected), strict=True):
        torch.testing.assert_close(found, value)


def test_clients_that_answer_noise_differently_keep_their_own(scenario):
    sent = [uplink(FedCtta(), scenario, *timesteps) for timesteps in ((1,), (2,))]
    far = sent[1]._replace(signature=sent[0].signature + 1e3)
    _, (own, statistics) = FedCtta().aggregate(scenario.deployment, {}, tree.stack([sent[0], far]), torch.ones(2))
    for found, value in zip(
        tree.leaves((own, statistics)), tree.leaves((sent[0].own, sent[0].statistics)), strict=True
    ):
        torch.testing.assert_close(found[0], value)


def test_everybody_is_given_the_same_noise_within_the_range_of_inputs(scenario):
    first = FedCtta().noise(scenario.deployment, torch.tensor(3))
    assert torch.equal(first, FedCtta().noise(scenario.deployment, torch.tensor(3)))
    assert not torch.equal(first, FedCtta().noise(scenario.deployment, torch.tensor(4)))
    reference = scenario.deployment.reference.inputs
    assert first.shape == (64, *reference.shape[1:])
    assert reference.min() <= first.min() < first.max() <= reference.max()


def test_running_statistics_of_fed_ctta_are_those_of_the_stream_where_weights_stay(scenario):
    ours, _ = after(FedCtta(learning_rate=0), scenario, 1, 2)
    theirs, _ = after(BnAdapt(mode="ema", momentum=0.1), scenario, 1, 2)
    first = next(name for name in ours.statistics if name.endswith("running_mean"))
    torch.testing.assert_close(ours.statistics[first], theirs[first])


def test_statistics_by_class_never_leave_a_client(scenario):
    sent = uplink(PfedBbn(), scenario, 1)
    assert max(value.ndim for value in tree.leaves(sent.statistics)) == 1


def test_without_a_certain_answer_scales_stay(scenario):
    strict = PfedBbn(reliable_entropy=1e-9)
    start = begin(strict, scenario.deployment)
    client, _ = after(strict, scenario, 1)
    assert equal(client.learner, start.learner)
    assert not equal(client.rows, start.rows)
    world = final_world(strict, scenario, participation=1.0)
    for name, value in start.learner.own.items():
        torch.testing.assert_close(world.clients.learner.own[name][0], value)
