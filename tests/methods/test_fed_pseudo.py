import torch
from torch.nn.functional import cross_entropy

from fedade.core import tree
from fedade.methods.fed_pseudo import FedPseudo

from .checks import (
    RATE,
    assert_close,
    assert_finite_on_one_sample,
    assert_maps_agree,
    first_batches,
    of_client,
    unlabelled,
)


def one_round(scenario, method, client=None):
    """A client's head, the body it sends, and the plan."""
    deployment = scenario.deployment
    client, shared = client or method.init_client(deployment), method.init_server(deployment)
    looked = unlabelled(of_client(first_batches(scenario), 0))
    _, plan = method.observe(deployment, client, shared, looked)
    moved, _, body = method.local_round(deployment, client, plan, shared, looked, torch.tensor(0))
    return {**body, **moved.own}, plan, looked


def test_steps_follow_confident_labels_with_every_class_counting_the_same(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    deployment, method = scenario.deployment, FedPseudo(rate=RATE, epochs=1, batch_size=1000)
    found, plan, looked = one_round(scenario, method)
    highest, labels = deployment.network.logits(deployment.parameters, looked.inputs).softmax(-1).max(-1)
    confident = highest >= 0.9
    assert 0 < plan["trusted"] < 1
    assert plan["trusted"] == confident.float().mean()
    with torch.enable_grad():
        leaves = {name: deployment.parameters[name].clone().requires_grad_() for name in found}
        logits = deployment.network.logits({**deployment.parameters, **leaves}, looked.inputs[confident])
        losses = cross_entropy(logits, labels[confident], reduction="none")
        torch.stack([losses[labels[confident] == one].mean() for one in labels[confident].unique()]).mean().backward()
    assert_close(found, {name: leaf.detach() - RATE.mid * leaf.grad for name, leaf in leaves.items()})


def test_an_unsure_client_learns_nothing(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    method = FedPseudo(rate=RATE)
    unsure = tree.tree_map(torch.zeros_like, method.init_client(scenario.deployment))
    found, plan, _ = one_round(scenario, method, unsure)
    assert plan["trusted"] == 0
    assert_close(found, {**method.init_server(scenario.deployment), **unsure.own})


def test_both_client_maps_agree(scenario_factory):
    assert_maps_agree(FedPseudo(rate=RATE, epochs=1), scenario_factory(num_clients=4, num_timesteps=2))


def test_one_sample_is_enough(scenario_factory):
    assert_finite_on_one_sample(FedPseudo(rate=RATE), scenario_factory)
