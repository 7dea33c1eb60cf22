import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.theory.equations.recovery import changes, recovery
from fedade.theory.equations.regret_bound import dynamic_regret, interval_regret

from ..maths.samples import QUICK, generator, seeds


def square_wave(period: int, steps: int) -> torch.Tensor:
    """ω(0..T) of one client that jumps every `period` timesteps."""
    return (torch.arange(steps + 1) // period % 2).double().unsqueeze(0)


def test_regret_against_oneself_is_zero():
    losses = torch.rand(3, 5, generator=generator(0))
    assert torch.equal(dynamic_regret(losses, losses, torch.ones(5)), torch.zeros(3))


def test_a_measured_timestep_stands_for_its_weight():
    losses, best = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])
    assert dynamic_regret(losses, best, torch.tensor([3.0, 1.0])).tolist() == [3 * 0.5 + 1.5]


@QUICK
@given(seed=seeds, period=st.integers(1, 12))
def test_regrets_of_the_periods_add_up_to_that_of_the_run(seed, period):
    losses, best = torch.rand(2, 4, 10, generator=generator(seed), dtype=torch.float64)
    weights, times = torch.rand(10, generator=generator(seed), dtype=torch.float64), torch.arange(1, 11)
    parts = interval_regret(losses, best, weights, times, period)
    assert parts.shape == (4, -(-10 // period))
    torch.testing.assert_close(parts.sum(-1), dynamic_regret(losses, best, weights))


def test_a_period_holds_its_own_timesteps_only():
    losses = torch.tensor([[1.0, 10.0, 100.0, 1000.0]])
    parts = interval_regret(losses, torch.zeros_like(losses), torch.ones(4), torch.tensor([1, 3, 4, 5]), 3)
    assert parts.tolist() == [[11.0, 1100.0]]


def test_changes_are_found_with_their_direction():
    weights = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.5, 1.0]])
    assert changes(weights, 1).tolist() == [[0, 2], [1, 1]]
    assert changes(weights, 0).tolist() == [[0, 4], [1, 2]]


@QUICK
@given(lag=st.integers(0, 9), clients=st.integers(1, 4))
def test_a_planted_recovery_is_found(lag, clients):
    """Accuracy drops by 20 points at every jump and is back after `lag` steps."""
    weights = square_wave(10, 60).expand(clients, -1)
    since = torch.arange(60) - (torch.arange(1, 61) // 10 * 10 - 1)
    accuracy = torch.where((torch.arange(1, 61) >= 10) & (since < lag), 0.6, 0.8).double().expand(clients, -1)
    found = [recovery(accuracy, weights, towards) for towards in (1, 0)]
    assert [one.steps for one in found] == [lag, lag]
    assert [one.num_changes for one in found] == [3 * clients, 3 * clients]


def test_who_is_never_back_before_the_next_change_has_no_recovery_time():
    weights = square_wave(10, 30)
    falling = torch.linspace(1, 0, 30, dtype=torch.float64).unsqueeze(0)
    assert recovery(falling, weights, 1).steps is None


def test_a_point_is_near_enough_and_two_are_not():
    weights = square_wave(10, 19)
    before = torch.full((1, 9), 0.8, dtype=torch.float64)
    for after, steps in ((0.7901, 0), (0.78, None)):
        accuracy = torch.cat([before, torch.full((1, 10), after, dtype=torch.float64)], 1)
        assert recovery(accuracy, weights, 1) == (steps, 1)


def test_what_came_before_is_the_last_five_steps_of_the_same_law():
    weights = torch.tensor([[0.0] + [1.0] * 3 + [0.0] * 8 + [1.0] * 4]).double()
    accuracy = torch.tensor([[0.0] * 3 + [0.1, 0.1, 0.1] + [0.5] * 5 + [0.3, 0.45, 0.48, 0.5]]).double()
    assert recovery(accuracy, weights, 1) == (3, 1)  # the jump at t = 1 has nothing before it
    short = torch.tensor([[0.9, 0.2, 0.2, 0.2]]).double()
    assert recovery(short, torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0]]).double(), 1) == (0, 1)


def test_mild_drift_has_no_changes():
    weights = torch.linspace(0, 1, 21, dtype=torch.float64).unsqueeze(0)
    assert recovery(torch.rand(1, 20, generator=generator(0)).double(), weights, 1) == (None, 0)


def test_noise_of_single_clients_averages_out():
    """Thirty samples per batch: a single client would seem recovered at once."""
    weights = square_wave(10, 40).expand(400, -1)
    truth = torch.where((torch.arange(1, 41) % 10 < 4) & (torch.arange(1, 41) >= 10), 0.6, 0.8)
    noisy = torch.binomial(torch.full((400, 40), 30.0), truth.expand(400, -1), generator=generator(1)) / 30
    assert recovery(noisy.double(), weights, 1).steps == pytest.approx(4)
