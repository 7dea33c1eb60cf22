import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from fedade.maths.schedules import SCHEDULES, VARIANTS
from fedade.maths.shift_weights import weights

from .samples import QUICK, generator, seeds

EVERY = list(itertools.product(SCHEDULES, VARIANTS))


def uniforms(horizon: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(horizon, generator=generator(seed))


@pytest.mark.parametrize(("name", "variant"), EVERY)
@QUICK
@given(horizon=st.integers(1, 500), seed=seeds)
def test_every_schedule_is_a_weight_that_starts_at_zero(name, variant, horizon, seed):
    omega = weights(name, horizon, uniforms(horizon, seed), variant)
    assert omega.shape == (horizon + 1,)
    assert omega.dtype == torch.float64
    assert omega[0] == 0
    assert (omega >= 0).all()
    assert (omega <= 1).all()


@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_short_horizons_are_weights_too(name, variant):
    for horizon in range(1, 30):
        omega = weights(name, horizon, uniforms(horizon), variant)
        assert ((omega >= 0) & (omega <= 1)).all()


def test_standard_values_at_a_hundred_timesteps():
    draws = uniforms(100)
    assert weights("lin", 100, draws)[[1, 50, 100]].tolist() == [0.01, 0.5, 1.0]
    sine = weights("sin", 100, draws)
    assert sine[5] == pytest.approx(1.0)
    assert torch.allclose(sine[1:91], sine[11:101])
    assert weights("squ", 100, draws)[:12].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0]


def test_literal_sine_has_the_printed_size_without_its_sign():
    assert weights("sin", 100, uniforms(100), "literal")[15] == pytest.approx(abs(math.sin(1.5 * math.pi)))


def test_literal_square_does_not_round_its_period():
    assert weights("squ", 9, uniforms(9), "literal").tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 1, 0]


def test_release_values_at_a_hundred_timesteps():
    draws = uniforms(100)
    assert weights("lin", 100, draws, "release")[[1, 100]].tolist() == [0.0, 1.0]
    assert weights("sin", 100, draws, "release")[[1, 10]].tolist() == [0.5, 0.5]
    square = weights("squ", 100, draws, "release")[1:]
    assert (square[1:] != square[:-1]).sum() == 24


def flip_rate(variant: str, horizon: int = 100, clients: int = 200) -> float:
    draws = torch.rand(clients, horizon, generator=generator(7))
    chains = torch.stack([weights("ber", horizon, row, variant) for row in draws])
    # A chain that has run for a while: the release law starts at 0 and takes about 10 timesteps to forget it.
    late = chains[:, 30:]
    return float((late[:, 1:] != late[:, :-1]).double().mean())


@pytest.mark.parametrize(("variant", "expected"), [("standard", 0.1), ("literal", 0.9), ("release", 0.5)])
def test_bernoulli_flips_at_the_rate_of_its_variant(variant, expected):
    # Independent draws (release) give dependent flips, whose variance is at most twice the binomial one.
    sigma = math.sqrt(2 * expected * (1 - expected) / (200 * 70))
    assert abs(flip_rate(variant) - expected) < 3 * sigma


def test_release_bernoulli_approaches_one_half_as_a_chain_does():
    draws = (torch.arange(1000) + 0.5) / 1000
    states = vmap(lambda u: weights("ber", 100, u.expand(100), "release"))(draws)
    shares = states[:, 1:4].mean(0).tolist()
    assert shares == pytest.approx([0, (1 - 0.8) / 2, (1 - 0.8**2) / 2])


def test_bernoulli_carries_its_state():
    draws = torch.ones(9) * 0.99
    draws[[2, 5]] = 0.0
    assert weights("ber", 9, draws).tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]


def test_clients_can_be_an_axis():
    draws = torch.rand(4, 20, generator=generator(0))
    mapped = vmap(lambda row: weights("ber", 20, row))(draws)
    assert torch.equal(mapped, torch.stack([weights("ber", 20, row) for row in draws]))


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'cos' is unknown; choose one of lin, "):
        weights("cos", 3, uniforms(3))
    with pytest.raises(ValueError, match=r"'exact' is unknown; choose one of standard, literal, release"):
        weights("lin", 3, uniforms(3), "exact")


@pytest.mark.parametrize(("horizon", "draws"), [(0, 0), (5, 4)])
def test_a_horizon_needs_one_draw_per_timestep(horizon, draws):
    with pytest.raises(ValueError, match="schedule horizon"):
        weights("lin", horizon, uniforms(draws))
