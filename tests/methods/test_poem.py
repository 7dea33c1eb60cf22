"""What POEM alone promises."""

import pytest
import torch

from fedade.methods.poem import Bettor, Poem, after_bet, interpolated
from fedade.parts.optimisers import MomentumOptimiser

from ..helpers import begin, equal
from .adapting import after


def bets(power: float, samples: int = 1000) -> Bettor:
    """A bettor after samples whose place in the law is a power of a uniform number."""
    draws = torch.rand(samples, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** power
    zero = torch.zeros((), dtype=torch.float64)
    bettor = Bettor(zero, zero, zero, zero)
    for place in draws:
        bettor = after_bet(bettor, place)
    return bettor


def test_nobody_wins_where_nothing_has_changed():
    bettor = bets(1.0)
    assert bettor.wealth < 1.5
    assert bettor.bet.abs() < 0.5
    assert int(bettor.samples) == 1000


def test_changes_are_won_from_and_bets_say_their_direction():
    uncertain, certain = bets(0.5), bets(2.0)
    assert uncertain.wealth > 50
    assert certain.wealth > 50
    assert uncertain.bet > 1
    assert certain.bet < -1


def test_interpolation_is_linear_between_knots_and_flat_beyond():
    knots, heights = torch.tensor([0.0, 1.0, 1.0, 3.0]), torch.tensor([0.25, 0.5, 0.75, 1.0])
    found = interpolated(torch.tensor([-1.0, 0.5, 2.0, 9.0]), knots, heights)
    torch.testing.assert_close(found, torch.tensor([0.25, 0.375, 0.875, 1.0]))


@pytest.mark.parametrize("warm_up", [1, 1000])
def test_nothing_moves_before_enough_was_bet_on(scenario_factory, warm_up):
    scenario = scenario_factory(kind="covariate")
    method = Poem(warm_up=warm_up)
    client, _ = after(method, scenario, 3, 4)
    assert equal(client.learner.own, begin(method, scenario.deployment).learner.own) == (warm_up == 1000)
    assert client.bettor.samples == 40


def test_momentum_is_pytorchs():
    start, slopes = torch.tensor([1.0, -2.0]), [torch.tensor([0.5, 1.0]), torch.tensor([-1.0, 3.0])]
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    ours, state = {"weight": start}, MomentumOptimiser().start({"weight": start})
    for slope in slopes:
        theirs.grad = slope
        optimiser.step()
        directions, state = MomentumOptimiser().directions(ours, {"weight": slope}, state)
        ours = {"weight": ours["weight"] - 0.1 * directions["weight"]}
    torch.testing.assert_close(ours["weight"], theirs.detach())
