"""Which samples the three ways of UNIDA learn from."""

import pytest
import torch
from torch.func import grad

from fedade.core.errors import FedadeError
from fedade.methods.unida.rules import Dance, Prototypes, Situation, Uan
from fedade.parts.discriminator import domain_logits
from fedade.parts.domain_pairs import Embedded

from ...parts.networks import with_body

PROTOTYPES = Prototypes(confidence=0.8, margin=0.5, separation=0.05, momentum=0.9)
SURE, TORN, LOST = (10.0, 0.0, 0.0, 0.0), (2.0, 1.0, 0.0, -1.0), (0.1, 0.0, 0.0, 0.0)
"""Logits of low, middle and high entropy."""


def situation(features, logits, memory, discriminators=None, own=None, reversal=1.0) -> Situation:
    source = torch.eye(4)
    embedded = Embedded(source, source, features, logits)
    return Situation(embedded, own or {}, memory, discriminators or {}, torch.tensor(reversal))


def test_prototypes_pull_the_known_push_the_unknown_and_leave_the_rest():
    logits = torch.tensor([SURE, TORN, LOST])
    features = torch.eye(4)[:3]
    memory = {"prototypes": torch.eye(4).roll(1, 0)}  # the nearest class of sample i is i + 1
    slopes = grad(lambda values: PROTOTYPES.loss(situation(features, values, memory)))(logits)
    assert slopes[0, 1] < 0 < slopes[0, 0]  # towards its prototype's class
    assert slopes[1].abs().sum() == 0
    assert slopes[2, 0] > 0  # towards uniform
    assert PROTOTYPES.unknown(features, logits, {}).tolist() == [False, False, True]


def test_a_sample_between_two_prototypes_is_not_known():
    logits, features = torch.tensor([SURE]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    slopes = grad(lambda values: PROTOTYPES.loss(situation(features, values, {"prototypes": torch.eye(4)})))(logits)
    assert slopes.abs().sum() == 0


def test_prototypes_follow_known_samples_only():
    features = torch.tensor([[1.0, 0.1, 0.0, 0.0], [0.0, 1.0, 0.1, 0.0]])
    after = PROTOTYPES.remember({"prototypes": torch.eye(4)}, features, torch.tensor([SURE, LOST]))["prototypes"]
    assert after[0, 1] > 0
    assert torch.equal(after[1:], torch.eye(4)[1:])


def test_the_bank_is_first_in_first_out():
    dance = Dance(separation=0.05, margin=0.5, bank_size=3)
    memory = {"bank": torch.zeros(3, 4), "filled": torch.tensor(0.0)}
    memory = dance.remember(memory, torch.eye(4)[:2], torch.zeros(2, 4))
    assert memory["filled"] == 2
    memory = dance.remember(memory, torch.eye(4)[2:], torch.zeros(2, 4))
    assert memory["filled"] == 3
    assert torch.equal(memory["bank"], torch.eye(4)[[2, 3, 0]])


def test_dance_gathers_features_around_remembered_ones():
    dance = Dance(separation=1.0, margin=9.0, bank_size=2)
    features, own = torch.tensor([[1.0, 0.2, 0.0, 0.0]]), {"head.weight": torch.eye(4)[2:]}
    bank = torch.eye(4)[:2]

    def slope(filled: float) -> torch.Tensor:
        memory = {"bank": bank, "filled": torch.tensor(filled)}
        return grad(lambda values: dance.loss(situation(values, torch.zeros(1, 4), memory, own=own)))(features)[0]

    assert slope(2.0)[1] > 0  # away from the farther of two neighbours
    assert slope(0.0)[:2].abs().max() < 1e-6  # an empty bank has no neighbours


def test_dance_needs_a_linear_head(scenario_factory):
    deployment = with_body(scenario_factory().deployment)
    del deployment.parameters["head.weight"]
    with pytest.raises(FedadeError, match="needs a linear head"):
        Dance(0.05, 0.5, 10).start(deployment)


def test_uan_misleads_its_adversary_and_its_judge_learns(scenario_factory):
    deployment = scenario_factory().deployment
    uan = Uan(width=8)
    _, discriminators = uan.start(deployment)
    size = len(deployment.initial_feature)
    features = torch.eye(size)[:4] + 1
    embedded = Embedded(torch.eye(size)[:5], torch.eye(5), features, torch.eye(4, 5))

    def loss(target, found):
        moved = embedded._replace(target_features=target)
        return uan.loss(Situation(moved, {}, {}, found, torch.tensor(1.0)))

    slopes = grad(loss, argnums=(0, 1))(features, discriminators)
    assert slopes[1]["judge"]["output.bias"].abs() > 0
    judged = domain_logits(discriminators["adversary"], features)
    closer = domain_logits(discriminators["adversary"], features - 10 * slopes[0])
    assert (closer > judged).any()  # descent makes targets look like the source
    assert closer.mean() > judged.mean()
