import torch
from torch.nn.functional import cross_entropy

from fedade.core import tree
from fedade.methods.fed_pseudo import FedPseudo

from ..helpers import begin, local_round, observe
from .checks import (
    RATE,
    assert_close,
    first_batches,
    of_client,
    unlabelled,
)


def one_round(scenario, method, client=None):
    """A client's head, the body it sends, and the plan."""
    deployment = scenario.deployment
    client, shared = client or begin(method, deployment), method.begin_server(deployment)
    looked = unlabelled(of_client(first_batches(scenario), 0))
    _, plan = observe(method, deployment, client, shared, looked)
    moved, _, body = local_round(method, deployment, client, plan, shared, looked, torch.tensor(0))
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
    unsure = tree.tree_map(torch.zeros_like, begin(method, scenario.deployment))
    found, plan, _ = one_round(scenario, method, unsure)
    assert plan["trusted"] == 0
    assert_close(found, {**method.begin_server(scenario.deployment), **unsure.own})
