"""What FedTSA alone promises."""

import pytest
import torch

from fedade.core import tree
from fedade.core.normalisation import Mixed
from fedade.methods.fed_tsa import FedTsa

from ..helpers import local_round, predict
from .adapting import after, batch

FEW = FedTsa(attention_steps=3)
KEYS = torch.arange(3, 9)


@pytest.mark.parametrize("method", [FEW, FedTsa(attention_steps=0)], ids=["trained", "plain"])
def test_clients_that_are_alike_are_attended_to(method):
    known = torch.ones(4, 5, dtype=torch.bool)
    past = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(1)).expand(4, 5, 6)
    torch.testing.assert_close(
        method.attention(past, known, KEYS[: len(known)]), torch.full((4, 4), 0.25), atol=1e-4, rtol=0
    )
    groups = torch.zeros(4, 5, 6)
    groups[:2, :, 0], groups[2:, :, 1] = 20.0, 20.0
    found = method.attention(groups, known, KEYS[: len(known)])
    torch.testing.assert_close(found.sum(-1), torch.ones(4))
    torch.testing.assert_close(
        found, torch.block_diag(torch.full((2, 2), 0.5), torch.full((2, 2), 0.5)), atol=1e-3, rtol=0
    )


def test_a_past_that_is_not_known_does_not_count():
    past = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(2))
    known = torch.arange(5).expand(3, 5) > 2
    other = torch.where(known.unsqueeze(-1), past, 99.0)
    torch.testing.assert_close(
        FEW.attention(past, known, KEYS[: len(known)]), FEW.attention(other, known, KEYS[: len(known)])
    )


def test_what_training_hides_is_drawn_anew_in_every_round():
    past = torch.randn(6, 5, 6, generator=torch.Generator().manual_seed(3))
    known = torch.ones(6, 5, dtype=torch.bool)
    method = FedTsa(attention_steps=3, attention_rate=0.1, robustness=10)
    found = [method.attention(past, known, KEYS + round_) for round_ in (1, 1, 2)]
    torch.testing.assert_close(found[0], found[1], atol=0, rtol=0)
    assert not torch.equal(found[0], found[2])


def test_a_client_alone_normalises_by_its_batch(scenario_factory):
    scenario = scenario_factory(kind="covariate")
    deployment, seen = scenario.deployment, batch(scenario)
    client, plan = after(FEW, scenario, 4)
    _, _, sent = local_round(FEW, deployment, client, plan, {}, seen, torch.tensor(1))
    _, told = FEW.aggregate(deployment, {}, tree.stack([sent]), torch.ones(1))
    found = predict(FEW, deployment, client._replace(statistics=tree.take(told, 0)), (), seen.inputs)
    expected = deployment.network.logits(deployment.parameters, seen.inputs, Mixed(1.0)).softmax(-1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_the_past_is_a_window(scenario_factory):
    scenario = scenario_factory(kind="covariate")
    client, _ = after(FedTsa(window=3), scenario, 1, 2)
    assert client.known.tolist() == [False, True, True]
    later, _ = after(FedTsa(window=3), scenario, 1, 2, 3, 4)
    torch.testing.assert_close(later.past[0], client.past[2])
