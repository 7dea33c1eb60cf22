import torch

from fedade.methods.ditto import Ditto

from ..helpers import begin, local_round, observe
from .checks import RATE, assert_close, first_batches, of_client, sgd_step, unlabelled


def personal_model(scenario, pull, offset=0.1, epochs=1):
    """The personal model after a round with a global model that differs from it by `offset`."""
    deployment = scenario.deployment
    method = Ditto(rate=RATE, pull=pull, global_epochs=0, personal_epochs=epochs, batch_size=1000)
    client = begin(method, deployment)
    shared = {name: value + offset * _alternating(value) for name, value in client.own.items()}
    looked = unlabelled(of_client(first_batches(scenario), 0))
    _, plan = observe(method, deployment, client, shared, looked)
    moved, _, _ = local_round(method, deployment, client, plan, shared, looked, torch.tensor(0))
    return client.own, shared, plan, moved.own


def _alternating(like):
    """+1, -1, +1, ...: far in weights, near in function."""
    return (1 - 2 * (torch.arange(like.numel()) % 2)).reshape(like.shape).to(like.dtype)


def test_a_step_is_the_published_one(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    client, shared, plan, found = personal_model(scenario, pull=2.0)
    plain = sgd_step(scenario.deployment, client, scenario.deployment.parameters, plan["prior"], RATE.mid)
    expected = {name: plain[name] - RATE.mid * 2.0 * (client[name] - shared[name]) for name in client}
    assert_close(found, expected)


def test_a_stronger_pull_ends_nearer_to_the_global_model(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    distances = []
    for pull in (0.0, 1.0, 3.0):
        _, shared, _, found = personal_model(scenario, pull, offset=0.01, epochs=4)
        distances.append(sum(float((found[name] - shared[name]).square().sum()) for name in found))
    assert distances[0] > 1.1 * distances[1] > 1.5 * distances[2]


def test_without_a_pull_the_global_model_has_no_say(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    assert_close(personal_model(scenario, 0.0, offset=0.1)[3], personal_model(scenario, 0.0, offset=-3.0)[3])
