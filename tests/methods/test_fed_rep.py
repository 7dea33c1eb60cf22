import torch

from fedade.methods.fed_rep import FedRep

from ..helpers import begin, local_round, observe
from .checks import RATE, assert_close, first_batches, of_client, sgd_step, unlabelled


def test_the_head_is_fitted_first_and_the_body_under_the_new_head(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    deployment, method = scenario.deployment, FedRep(rate=RATE, head_epochs=1, body_epochs=1, batch_size=1000)
    client, shared = begin(method, deployment), method.begin_server(deployment)
    looked = unlabelled(of_client(first_batches(scenario), 0))
    _, plan = observe(method, deployment, client, shared, looked)
    moved, _, body = local_round(method, deployment, client, plan, shared, looked, torch.tensor(0))
    new_head = sgd_step(deployment, client.own, deployment.parameters, plan["prior"], RATE.mid)
    new_body = sgd_step(deployment, shared, {**deployment.parameters, **new_head}, plan["prior"], RATE.mid)
    together = sgd_step(deployment, shared, deployment.parameters, plan["prior"], RATE.mid)
    assert_close(moved.own, new_head)
    assert_close(body, new_body)
    assert any((body[name] - value).abs().max() > 1e-5 for name, value in together.items())


def test_only_the_body_travels_and_heads_stay_personal(scenario_factory):
    deployment = scenario_factory(num_clients=2).deployment
    method = FedRep()
    assert all(name.startswith("body.") for name in method.begin_server(deployment))
    assert set(begin(method, deployment).own) == {"head.weight", "head.bias"}
