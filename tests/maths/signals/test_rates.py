import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fedade.maths.signals.dynamics import adaptive_rate

from ..samples import QUICK, unit_interval

bounds = st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)).map(sorted)


@QUICK
@given(bounds=bounds, signals=st.lists(unit_interval, min_size=2, max_size=20).map(sorted))
def test_rates_stay_within_bounds_and_grow_with_the_signal(bounds, signals):
    low, high = bounds
    rates = adaptive_rate(torch.tensor(signals), low, high)
    assert (rates >= low).all()
    assert (rates <= high).all()
    assert (rates.diff() >= 0).all()


def test_the_ends_of_the_signal_are_the_bounds():
    rates = adaptive_rate(torch.tensor([0.0, 1.0], dtype=torch.float64), 5e-6, 1e-4)
    assert rates.tolist() == pytest.approx([5e-6, 1e-4], rel=1e-12)


def test_a_signal_outside_its_range_cannot_push_the_rate_out():
    assert adaptive_rate(torch.tensor([-1.0, 2.0]), 0.25, 0.5).tolist() == [0.25, 0.5]


@QUICK
@given(rate=st.floats(0, 1), signal=st.floats(width=32))
@example(rate=0.1, signal=math.nan)
@example(rate=0.1, signal=math.inf)
def test_equal_bounds_ignore_the_signal(rate, signal):
    assert adaptive_rate(torch.tensor(signal, dtype=torch.float64), rate, rate).item() == rate


def test_wrong_bounds_are_named():
    with pytest.raises(ValueError, match=r"low 0.001 > high 0.0001; swap them\?"):
        adaptive_rate(torch.zeros(1), 1e-3, 1e-4)
    with pytest.raises(ValueError, match="low -1 is negative"):
        adaptive_rate(torch.zeros(1), -1.0, 1.0)
