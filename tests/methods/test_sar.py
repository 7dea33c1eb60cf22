"""What SAR alone promises."""

import math

import pytest
import torch
from torch import nn

from fedade.core.errors import FedadeError
from fedade.maths.losses import entropy_from_logits
from fedade.methods.sar import Sar
from fedade.parts.norm_layers import batch_logits, norm_affine

from ..helpers import Seen, begin, equal, observe
from ..parts.networks import with_body

FAST = {"learning_rate": 1e-1, "include_last_stage": True}


def after(method: Sar, deployment, observation, times: int = 1):
    client, plan = begin(method, deployment), {}
    for _ in range(times):
        client, plan = observe(method, deployment, client, (), observation)
    return client, plan


@pytest.mark.filterwarnings("ignore:sar. model 'toy' has no BatchNorm layer:RuntimeWarning")
def test_unreliable_samples_are_left_out(scenario, observation):
    # Samples of a model with GroupNorm do not see one another, so only the filter decides who counts.
    deployment = with_body(scenario.deployment, nn.GroupNorm(2, 4))
    entropy = entropy_from_logits(batch_logits(deployment, {}, observation.inputs))
    order = entropy.argsort()
    limit = float(entropy[order[8:12]].mean()) / math.log(10)
    method = Sar(**FAST, reliable_entropy=limit)

    def with_row(row: int, other: int) -> Seen:
        inputs = observation.inputs.clone()
        inputs[order[row]] = inputs[order[other]]
        return observation._replace(inputs=inputs)

    plain, plan = after(method, deployment, observation)
    assert 0 < plan["reliable"] < 1
    assert equal(after(method, deployment, with_row(-1, -2))[0], plain)
    assert not equal(after(method, deployment, with_row(0, 1))[0], plain)


def test_with_adamw_the_steps_have_no_other_momentum(scenario, observation):
    settings = {**FAST, "optimiser": {"name": "adamw"}, "reset_loss": 0}
    one, other = (
        after(Sar(**settings, sgd_momentum=momentum), scenario.deployment, observation, 2)[0] for momentum in (0, 0.9)
    )
    assert equal(one, other)
    assert one.learner.state.steps == 2


def test_without_a_reliable_sample_nothing_moves(scenario, observation):
    method = Sar(**FAST, reliable_entropy=1e-9)
    client, plan = after(method, scenario.deployment, observation, 2)
    assert plan["reliable"] == 0
    assert equal(client, begin(method, scenario.deployment))


def test_the_slope_is_that_of_the_worst_nearby_point(scenario, observation):
    deployment = scenario.deployment
    method = Sar(**FAST, reliable_entropy=10.0, sharpness_radius=0.05)
    start = norm_affine(deployment, "sar")

    def slopes(at):
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        loss = entropy_from_logits(batch_logits(deployment, leaves, observation.inputs)).mean()
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    flat = slopes(start)
    size = torch.cat([slope.flatten() for slope in flat.values()]).norm()
    worst = slopes({name: value + 0.05 * flat[name] / size for name, value in start.items()})
    client, _ = after(method, deployment, observation)
    for name, value in client.learner.own.items():
        torch.testing.assert_close(value, start[name] - 0.1 * worst[name], atol=1e-5, rtol=1e-4)
    plain, _ = after(method.model_copy(update={"sharpness_radius": 0.0}), deployment, observation)
    assert not equal(plain.learner.own, client.learner.own)


def test_a_collapsed_client_returns_to_the_deployed_model(scenario, observation):
    method = Sar(**FAST, reset_loss=100.0)
    client, plan = after(method, scenario.deployment, observation, 2)
    assert plan["reset"] == 1
    assert equal(client, begin(method, scenario.deployment))
    moving, plan = after(Sar(**FAST, reset_loss=0.0), scenario.deployment, observation, 2)
    assert plan["reset"] == 0
    assert moving.losses == 2
    assert not equal(moving.learner.own, client.learner.own)


def test_a_model_without_norm_layers_is_refused(scenario):
    with pytest.raises(FedadeError, match="sar: model 'toy' has no normalisation layer"):
        begin(Sar(), with_body(scenario.deployment))
