"""What UDA alone promises."""

import numpy as np
import pytest
import torch

from fedade.core import tree
from fedade.methods.uda.method import Uda

from ...helpers import Seen, begin, final_world, observe, run

FAST = {"rate": {"low": 1e-3, "mid": 3e-2, "high": 1e-1}}
ALIGNMENTS = ("coral", "mmd", "dann")


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", num_timesteps=2, num_clients=3)


@pytest.fixture(scope="module")
def observation(scenario) -> Seen:
    return Seen(scenario.streams.draw(np.arange(1), 2).inputs[0], torch.tensor(1), torch.tensor(5))


def distances(method: Uda, scenario, observation, times: int, steps_before: float = 0.0) -> list[float]:
    client, found = begin(method, scenario.deployment), []
    client = client._replace(steps=client.steps + steps_before)
    for _ in range(times):
        client, plan = observe(method, scenario.deployment, client, (), observation)
        found.append(float(plan["alignment"]))
    return found


@pytest.mark.parametrize("alignment", ["coral", "mmd"])
def test_the_distance_falls_because_it_is_descended(scenario, observation, alignment):
    settings = {**FAST, "alignment": alignment, "pair_size": 64}
    aligned = distances(Uda(**settings), scenario, observation, 6)
    ignored = distances(Uda(**settings, alignment_weight=0.0), scenario, observation, 6)
    assert aligned[-1] < 0.8 * aligned[0]
    assert aligned[-1] < 0.9 * ignored[-1]


def test_features_mislead_the_discriminator_once_the_reversal_has_grown(scenario, observation):
    method = Uda(**FAST, alignment="dann", alignment_weight=5.0, pair_size=64, discriminator_rate=0.05)
    told_apart = distances(method, scenario, observation, 8)
    misled = distances(method, scenario, observation, 8, steps_before=1e6)
    assert told_apart[-1] < told_apart[0]
    assert misled[-1] > told_apart[-1]


def test_the_reference_labels_keep_the_classes_in_place(scenario, observation):
    method = Uda(**FAST, steps=8)
    client, _ = observe(method, scenario.deployment, begin(method, scenario.deployment), (), observation)
    inputs, labels = scenario.deployment.reference

    def loss(parameters) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scenario.deployment.network.logits(parameters, inputs), labels)

    assert loss({**scenario.deployment.parameters, **client.own}) < loss(scenario.deployment.parameters)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_clients_together_are_clients_alone(scenario, alignment):
    method = Uda(**FAST, alignment=alignment, pair_size=8, steps=2)
    together, apart = final_world(method, scenario), final_world(method, scenario, vectorised=False)
    for one, other in zip(tree.leaves(together.clients), tree.leaves(apart.clients), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_one_sample_is_enough(scenario_factory, alignment):
    for rows in run(Uda(**FAST, alignment=alignment, steps=2), scenario_factory(samples=1, num_timesteps=2)):
        assert all(np.isfinite(values).all() for values in rows.values())
