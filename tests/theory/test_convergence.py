import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.theory.equations.convergence import Convergence, gradient_diversity, largest_singular_value

from ..maths.samples import QUICK, generator, seeds


def theorem(rho_squared: float, chi: float, participants: int, num_clients: int) -> Convergence:
    return Convergence(4.0, 9.0, 6 * chi, rho_squared, 0.0, 0.0, 0.0, participants, num_clients)


def test_the_ceiling_is_the_smallest_of_three():
    assert theorem(0.0, 0.0, 10, 100).ceiling() == pytest.approx(1 / 24)
    assert theorem(3.0, 0.0, 10, 100).ceiling() == pytest.approx(1 / 96)
    assert theorem(0.0, 1.0, 10, 100).ceiling() == pytest.approx(10 / (128 * 90))
    assert theorem(0.0, 100.0, 100, 100).ceiling() == pytest.approx(math.sqrt(1 / 100**2))


def test_when_all_take_part_the_second_condition_is_void():
    assert theorem(0.0, 1.0, 100, 100).ceiling() == pytest.approx(1 / 24)


@QUICK
@given(rho=st.floats(0, 100), chi=st.floats(0, 10), more=st.floats(0.01, 10), participants=st.integers(1, 49))
def test_the_ceiling_falls_with_diversity_and_cross_sensitivity_and_rises_with_participation(
    rho, chi, more, participants
):
    here = theorem(rho, chi, participants, 50).ceiling()
    assert 0 < here <= 1 / 24
    assert theorem(rho + more, chi, participants, 50).ceiling() <= here
    assert theorem(rho, chi + more, participants, 50).ceiling() <= here
    assert theorem(rho, chi, participants + 1, 50).ceiling() >= here


def test_cross_sensitivity_has_no_unit():
    constants = theorem(0.0, 0.5, 1, 2)
    assert constants.chi == pytest.approx(0.5)
    scaled = constants._replace(k_shared=40.0, k_personal=90.0, k_cross=30.0)
    assert scaled.chi == pytest.approx(0.5)


@QUICK
@given(rho=st.floats(0, 10), delta=st.floats(0, 10))
def test_planted_diversity_is_found(rho, delta):
    norms = torch.tensor([0.5, 1.0, 2.0, 5.0], dtype=torch.float64)
    assert gradient_diversity(delta + rho * norms, norms) == pytest.approx((rho, delta), abs=1e-6)


@pytest.mark.parametrize(("spreads", "expected"), [([3.0, 2.0, 1.0], (0.0, 2.0)), ([0.0, 2.0, 4.0], None)])
def test_diversity_is_never_negative(spreads, expected):
    rho, delta = gradient_diversity(torch.tensor(spreads), torch.tensor([1.0, 2.0, 3.0]))
    assert rho >= 0
    assert delta >= 0
    if expected:
        assert (rho, delta) == pytest.approx(expected)
    else:
        assert delta == 0


def test_one_point_says_nothing_of_the_slope():
    assert gradient_diversity(torch.tensor([3.0]), torch.tensor([1.0])) == (0.0, 3.0)


@QUICK
@given(seed=seeds)
def test_power_iteration_finds_the_norm_of_a_block(seed):
    matrix = torch.randn(5, 8, generator=generator(seed), dtype=torch.float64)
    start = torch.randn(8, generator=generator(seed + 1), dtype=torch.float64)
    true = torch.linalg.matrix_norm(matrix, 2)
    found = largest_singular_value(lambda v: matrix @ v, lambda v: matrix.mT @ v, start, iterations=300)
    assert found.item() == pytest.approx(true.item(), rel=1e-3)
    few = largest_singular_value(lambda v: matrix @ v, lambda v: matrix.mT @ v, start, iterations=2)
    assert few <= true + 1e-9


def test_power_iteration_of_nothing_is_nothing():
    assert largest_singular_value(lambda v: 0 * v, lambda v: 0 * v, torch.ones(3)) == 0
