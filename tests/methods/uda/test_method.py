"""What UDA alone promises."""

import torch

from fedade.methods.uda import Uda

from ...helpers import begin, observe

FAST = {"rate": {"low": 1e-3, "mid": 3e-2, "high": 1e-1}}


def distances(method: Uda, scenario, observation, times: int) -> list[float]:
    client, found = begin(method, scenario.deployment), []
    for _ in range(times):
        client, plan = observe(method, scenario.deployment, client, (), observation)
        found.append(float(plan["alignment"]))
    return found


def test_the_distance_falls_because_it_is_descended(scenario, observation):
    settings = {**FAST, "pair_size": 64}
    aligned = distances(Uda(**settings), scenario, observation, 6)
    ignored = distances(Uda(**settings, alignment_weight=0.0), scenario, observation, 6)
    assert aligned[-1] < 0.8 * aligned[0]
    assert aligned[-1] < 0.9 * ignored[-1]


def test_the_reference_labels_keep_the_classes_in_place(scenario, observation):
    method = Uda(**FAST, steps=8)
    client, _ = observe(method, scenario.deployment, begin(method, scenario.deployment), (), observation)
    inputs, labels = scenario.deployment.reference

    def loss(parameters) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scenario.deployment.network.logits(parameters, inputs), labels)

    assert loss({**scenario.deployment.parameters, **client.own}) < loss(scenario.deployment.parameters)
