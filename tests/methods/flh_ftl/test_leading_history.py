import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedade.methods.flh_ftl import follow, forecast, no_history

from ...maths.samples import QUICK, generator, is_distribution, seeds, softmax_batch

CLASSES, RATE = 4, 1 / 4
UNIFORM = torch.full((CLASSES,), 1 / CLASSES)


def forecasts(estimates: Tensor, horizon: int) -> Tensor:
    """What the pool says after each estimate."""
    history, said = no_history(horizon, UNIFORM), []
    for estimate in estimates:
        history = follow(history, estimate, RATE)
        said.append(forecast(history, UNIFORM))
    return torch.stack(said)


def forecasts_of_all_experts(estimates: Tensor) -> Tensor:
    """The same with every expert kept, as published."""
    weights, said = estimates.new_zeros(0), []
    for count, estimate in enumerate(estimates):
        means = torch.stack([estimates[start:count].mean(0) for start in range(count)] or [UNIFORM])[:count]
        weights = weights * (-RATE * (means - estimate).square().sum(-1)).exp()
        weights = weights / weights.sum() * count / (count + 1)
        weights = torch.cat([weights, estimates.new_tensor([1 / (count + 1)])])
        means = torch.stack([estimates[start : count + 1].mean(0) for start in range(count + 1)])
        said.append(weights @ means)
    return torch.stack(said)


@QUICK
@given(seed=seeds, horizon=st.integers(1, 20))
def test_every_forecast_is_a_distribution_even_beyond_the_horizon(seed, horizon):
    assert is_distribution(forecasts(softmax_batch(seed, 30, CLASSES, scale=6.0), horizon))


@QUICK
@given(seed=seeds)
def test_nothing_is_pruned_before_the_fifth_estimate(seed):
    estimates = softmax_batch(seed, 4, CLASSES, scale=6.0)
    assert torch.allclose(forecasts(estimates, 100), forecasts_of_all_experts(estimates), atol=1e-5)


def test_a_constant_is_forecast_exactly():
    constant = softmax_batch(0, CLASSES)
    assert torch.allclose(forecasts(constant.expand(50, -1), 50), constant.expand(50, -1), atol=1e-5)


def test_the_pruned_pool_follows_a_change_as_well_as_all_experts_do():
    before, after = torch.tensor([0.85, 0.05, 0.05, 0.05]), torch.tensor([0.05, 0.05, 0.05, 0.85])
    truth = torch.cat([before.expand(50, -1), after.expand(50, -1)])
    drawn = [torch.multinomial(prior, 30, True, generator=generator(row)) for row, prior in enumerate(truth)]
    estimates = torch.stack([labels.bincount(minlength=CLASSES) / 30 for labels in drawn])

    def error(said: Tensor) -> float:
        return float((said - truth).square().sum(-1).mean())

    pruned, complete = error(forecasts(estimates, 100)), error(forecasts_of_all_experts(estimates))
    assert pruned < 1.1 * complete
    everything = estimates.cumsum(0) / torch.arange(1, 101).unsqueeze(-1)
    assert pruned < 0.5 * error(everything)


def test_memory_grows_with_the_logarithm_of_the_horizon():
    assert no_history(100, UNIFORM).weights.numel() == 14
    assert no_history(10_000, UNIFORM).weights.numel() == 28
