import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.theory.equations.regret_bound import BoundConstants, bound_terms, optimal_rate, optimal_rate_order

from ..maths.samples import QUICK

positive = st.floats(1e-3, 1e3)
constants = st.builds(
    BoundConstants,
    num_classes=st.integers(2, 200),
    gradient_norm=positive,
    loss=positive,
    radius=st.floats(0, 100),
    singular_value=st.floats(1e-3, 1),
    variation=positive,
    num_timesteps=st.integers(1, 10_000),
)
ONES = BoundConstants(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1)


def test_the_terms_are_those_of_the_appendix():
    given_constants = BoundConstants(10, 2.0, 3.0, 0.5, 0.25, 4.0, 100)
    optimisation, projection, adaptation = bound_terms(given_constants, 0.01)
    assert optimisation == pytest.approx(2 * (10 * 4 / 0.0625 + 9) * 0.01 * 100)
    assert projection == pytest.approx(0.25 / 0.01)
    assert adaptation == pytest.approx(4 * 1.5 * math.sqrt(3 * 4 * 100 / 0.01))


@QUICK
@given(constants=constants)
def test_the_best_rate_is_that_of_brute_force(constants):
    best = optimal_rate(constants)
    rates = best * np.geomspace(1e-2, 1e2, 601)
    totals = [bound_terms(constants, rate).total for rate in rates]
    assert rates[int(np.argmin(totals))] == pytest.approx(best, rel=0.01)
    assert bound_terms(constants, best).total <= min(totals) * (1 + 1e-9)


@QUICK
@given(constants=constants)
def test_at_the_best_rate_rising_and_falling_terms_balance(constants):
    """dB/d log η = optimisation − projection − adaptation / 2 = 0."""
    terms = bound_terms(constants, optimal_rate(constants))
    assert terms.optimisation == pytest.approx(terms.projection + terms.adaptation / 2, rel=1e-3)


@QUICK
@given(constants=constants, factor=st.floats(1.5, 100))
def test_more_shift_wants_a_larger_rate_and_makes_the_bound_worse(constants, factor):
    shifting = replace(constants, variation=factor * constants.variation)
    assert optimal_rate(shifting) >= optimal_rate(constants) * (1 - 1e-6)
    before, after = (bound_terms(one, optimal_rate(one)).total for one in (constants, shifting))
    assert after > before


@pytest.mark.parametrize("name", ["num_classes", "gradient_norm", "loss", "radius", "variation", "num_timesteps"])
def test_every_constant_but_sigma_raises_the_bound(name):
    raised = replace(ONES, **{name: 2 * getattr(ONES, name)})
    assert bound_terms(raised, 0.1).total > bound_terms(ONES, 0.1).total


def test_a_matrix_that_is_easier_to_invert_lowers_the_bound():
    assert bound_terms(replace(ONES, singular_value=2.0), 0.1).total < bound_terms(ONES, 0.1).total


@pytest.mark.parametrize(("signals", "horizons"), [((1.0, 8.0), (1000, 1000)), ((2.0, 2.0), (1000, 8000))])
def test_the_numeric_best_rate_follows_the_order_of_the_closed_form(signals, horizons):
    """Where the projection is nothing, η* is exactly proportional to (S̄/T)^{1/3}."""
    free = [replace(ONES, radius=0.0, variation=s, num_timesteps=t) for s, t in zip(signals, horizons, strict=True)]
    ratios = [optimal_rate(one) / optimal_rate_order(one.variation, one.num_timesteps) for one in free]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)


def test_the_bound_at_the_best_rate_has_the_promised_exponents():
    free = replace(ONES, radius=0.0, num_timesteps=1000)
    base = bound_terms(free, optimal_rate(free)).total
    longer = replace(free, num_timesteps=8000)
    wilder = replace(free, variation=8.0)
    assert bound_terms(longer, optimal_rate(longer)).total / base == pytest.approx(8 ** (2 / 3), rel=1e-6)
    assert bound_terms(wilder, optimal_rate(wilder)).total / base == pytest.approx(8 ** (1 / 3), rel=1e-6)


def test_without_anything_to_follow_the_best_rate_is_none():
    assert optimal_rate(replace(ONES, radius=0.0, variation=0.0)) == 0
    assert optimal_rate(replace(ONES, gradient_norm=0.0, loss=0.0)) == math.inf
