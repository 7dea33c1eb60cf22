import torch

from fedade.core.tree import leaves, stack
from fedade.methods.fed_avg import FedAvg
from fedade.parts.composition import trainable

from ..helpers import begin, final_world, local_round, observe
from .checks import RATE, assert_close, first_batches, of_client, sgd_step, unlabelled

KEY = torch.tensor(0)


def test_the_server_holds_the_weighted_mean_of_what_clients_trained_head_included(scenario_factory):
    scenario = scenario_factory(num_clients=3)
    deployment, method = scenario.deployment, FedAvg(rate=RATE, epochs=1, batch_size=1000)
    shared, seen, state = method.begin_server(deployment), first_batches(scenario), begin(method, deployment)
    uplinks, expected = [], []
    for client in range(3):
        looked = unlabelled(of_client(seen, client))
        _, plan = observe(method, deployment, state, shared, looked)
        uplinks.append(local_round(method, deployment, state, plan, shared, looked, KEY)[2])
        expected.append(sgd_step(deployment, shared, deployment.parameters, plan["prior"], RATE.mid))
    weights = torch.tensor([1.0, 1.0, 2.0])
    found, _ = method.aggregate(deployment, shared, stack(uplinks), weights)
    mean = {name: (expected[0][name] + expected[1][name] + 2 * expected[2][name]) / 4 for name in trainable(deployment)}
    assert_close(found, mean)
    assert not torch.equal(found["head.weight"], deployment.parameters["head.weight"])


def test_a_client_keeps_nothing_and_statistics_never_travel(scenario_factory):
    world = final_world(FedAvg(rate=RATE), scenario_factory())
    assert leaves(world.clients) == []
    assert not any("running" in name for name in world.server)
