import torch
from hypothesis import given
from torch.func import grad

from fedade.maths.signals.dynamics import SHORTEST, directions

from ..samples import QUICK, vectors


@QUICK
@given(values=vectors())
def test_a_direction_has_length_1_unless_there_is_none(values):
    length = float(directions(values).norm())
    assert length <= 1 + 1e-5
    if float(values.norm()) > SHORTEST:
        assert abs(length - 1) < 1e-5


def test_slopes_at_zero_are_bounded():
    slope = grad(lambda values: directions(values).sum())(torch.zeros(3))
    assert (slope.abs() <= 1 / SHORTEST + 1).all()
