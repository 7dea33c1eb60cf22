"""What TENT alone promises."""

import pytest
import torch
from torch import nn

from fedade.core.errors import FedadeError
from fedade.maths.losses import entropy_from_logits
from fedade.methods.tent import Tent
from fedade.parts.norm_layers import batch_logits, norm_affine

from ..helpers import begin, observe
from ..parts.networks import with_body


def entropies(method: Tent, deployment, observation, times: int) -> list[float]:
    client, found = begin(method, deployment), []
    for _ in range(times):
        client, plan = observe(method, deployment, client, (), observation)
        found.append(float(plan["entropy"]))
    return found


def test_entropy_falls(scenario, observation):
    falling = entropies(Tent(learning_rate=1e-2), scenario.deployment, observation, 6)
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 0.8 * falling[0]


def test_it_is_plain_autograd_with_pytorchs_adam(scenario, observation):
    deployment, method = scenario.deployment, Tent(adaptation_steps=3)
    theirs = {name: value.clone().requires_grad_() for name, value in norm_affine(deployment, "tent").items()}
    optimiser = torch.optim.Adam(theirs.values(), lr=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        entropy_from_logits(batch_logits(deployment, theirs, observation.inputs)).mean().backward()
        optimiser.step()
    client, _ = observe(method, deployment, begin(method, deployment), (), observation)
    assert client.own.keys() == theirs.keys()
    for name, value in client.own.items():
        torch.testing.assert_close(value, theirs[name].detach(), atol=1e-5, rtol=1e-4)


def test_a_model_with_group_norm_moves_its_scales(scenario, observation):
    deployment = with_body(scenario.deployment, nn.GroupNorm(2, 4))
    with pytest.warns(RuntimeWarning, match="tent: model 'toy' has no BatchNorm layer, .*scales of the norms"):
        falling = entropies(Tent(learning_rate=1e-2), deployment, observation, 4)
    assert falling[-1] < falling[0]


def test_a_model_without_norm_layers_is_refused(scenario):
    with pytest.raises(FedadeError, match="tent: model 'toy' has no normalisation layer"):
        begin(Tent(), with_body(scenario.deployment))
