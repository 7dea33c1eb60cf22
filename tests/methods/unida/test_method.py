"""What UNIDA alone promises: which samples it learns from."""

import numpy as np
import torch
from torch.func import grad

from fedade.maths.losses import entropy
from fedade.methods.unida import Unida
from fedade.parts.domain_pairs import Embedded

from ...helpers import begin, observe, predict

UNIDA = Unida(rate={"low": 1e-3, "mid": 1e-2, "high": 1e-1}, pair_size=64, prototype_momentum=0.9)
SURE, TORN, LOST = (10.0, 0.0, 0.0, 0.0), (2.0, 1.0, 0.0, -1.0), (0.1, 0.0, 0.0, 0.0)
"""Logits of low, middle and high entropy."""


def slopes(features, logits, prototypes) -> torch.Tensor:
    source = torch.eye(4)
    return grad(lambda values: UNIDA.stream_loss(Embedded(source, source, features, values), prototypes)[0])(logits)


def test_prototypes_pull_the_known_push_the_unknown_and_leave_the_rest():
    logits = torch.tensor([SURE, TORN, LOST])
    found = slopes(torch.eye(4)[:3], logits, torch.eye(4).roll(1, 0))  # the nearest class of sample i is i + 1
    assert found[0, 1] < 0 < found[0, 0]  # towards its prototype's class
    assert found[1].abs().sum() == 0
    assert found[2, 0] > 0  # towards uniform


def test_a_sample_between_two_prototypes_is_not_known():
    assert slopes(torch.tensor([[1.0, 1.0, 0.0, 0.0]]), torch.tensor([SURE]), torch.eye(4)).abs().sum() == 0


def test_prototypes_follow_known_samples_only():
    features = torch.tensor([[1.0, 0.1, 0.0, 0.0], [0.0, 1.0, 0.1, 0.0]])
    after = UNIDA.followed(torch.eye(4), features, torch.tensor([SURE, LOST]))
    assert after[0, 1] > 0
    assert torch.equal(after[1:], torch.eye(4)[1:])


def test_uncertain_samples_count_as_unknown(scenario, observation):
    method = Unida(proto_margin=0.0, steps=0)
    client, plan = observe(method, scenario.deployment, begin(method, scenario.deployment), (), observation)
    probabilities = predict(method, scenario.deployment, client, (), observation.inputs)
    unknown = entropy(probabilities) > np.log(10) / 2
    assert plan["unknown"] == unknown.float().mean()
    assert 0 < plan["unknown"] < 1


def test_prototypes_teach_the_known_samples(scenario, observation):
    def certainty(**settings) -> float:
        method = UNIDA.model_copy(update=settings)
        client = begin(method, scenario.deployment)
        for _ in range(3):
            client, _ = observe(method, scenario.deployment, client, (), observation)
        return float(entropy(predict(method, scenario.deployment, client, (), observation.inputs)).mean())

    assert certainty(confidence=0.0, proto_margin=0.0) < certainty(confidence=1.0, proto_margin=1.0)
