"""What FedTHE+ alone promises."""

import pytest
import torch

from fedade.methods.fed_the_plus import FedThePlus, head_shares
from fedade.methods.source import Source

from ..helpers import begin, predict
from .adapting import after, batch

PLAIN = {"steps": 0}


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="both")


def server(scenario) -> dict[str, torch.Tensor]:
    return FedThePlus().begin_server(scenario.deployment)


def test_heads_that_agree_stay_even():
    heads = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1)).expand(2, 6, 4)
    torch.testing.assert_close(head_shares(heads, torch.rand(2, 6), 20, 0.1), torch.full((2, 6), 0.5))


def test_where_heads_disagree_the_nearer_one_is_taken_but_not_alone():
    heads = torch.tensor([[[50.0, 0.0]], [[0.0, 50.0]]])
    shares = head_shares(heads, torch.tensor([[0.0], [1.0]]), 20, 0.1)
    torch.testing.assert_close(shares, torch.tensor([[0.969], [0.031]]), atol=2e-3, rtol=0)


def test_a_fresh_client_has_one_head_and_answers_as_the_source(scenario):
    method, inputs = FedThePlus(**PLAIN), batch(scenario).inputs
    found = predict(method, scenario.deployment, begin(method, scenario.deployment), server(scenario), inputs)
    torch.testing.assert_close(found, predict(Source(), scenario.deployment, (), (), inputs), atol=1e-5, rtol=1e-4)


def test_the_head_is_fitted_once_and_the_history_goes_on(scenario):
    method = FedThePlus(**PLAIN)
    (first, _), (second, _) = after(method, scenario, 1), after(method, scenario, 1, 2)
    deployed = begin(method, scenario.deployment)
    for name, value in first.head.items():
        assert torch.equal(value, second.head[name])
        assert not torch.equal(value, deployed.head[name])
    assert not torch.equal(first.history, second.history)


def test_answers_do_not_depend_on_how_a_stream_is_cut_into_batches(scenario):
    method = FedThePlus(**PLAIN)
    client, _ = after(method, scenario, 1)
    inputs = batch(scenario).inputs
    whole = predict(method, scenario.deployment, client, server(scenario), inputs)
    first = predict(method, scenario.deployment, client, server(scenario), inputs[:5])
    torch.testing.assert_close(whole[:5], first, atol=1e-3, rtol=1e-2)


def test_steps_on_views_make_answers_surer_and_leave_nothing_behind(scenario):
    inputs = batch(scenario).inputs[:6]
    method = FedThePlus(views=4, tuning_rate=0.05)
    client, _ = after(FedThePlus(**PLAIN), scenario, 1)
    tuned, plain = (
        predict(chosen, scenario.deployment, client, server(scenario), inputs)
        for chosen in (method, FedThePlus(**PLAIN))
    )
    assert tuned.max(-1).values.mean() > plain.max(-1).values.mean()
    assert torch.equal(predict(method, scenario.deployment, client, server(scenario), inputs), tuned)
