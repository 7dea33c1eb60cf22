import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.methods.atlas import released_pool, single_step_size, theorem_pool

from ...maths.samples import QUICK

DIAMETER, BOUND = torch.tensor(20.0), torch.tensor(4.0)


def test_a_single_step_size_is_diameter_over_bound_and_root_of_the_horizon():
    assert single_step_size(DIAMETER, BOUND, 100).tolist() == [0.5]


@QUICK
@given(horizon=st.integers(1, 10_000))
def test_the_released_pool_doubles_until_it_passes_diameter_over_bound(horizon):
    pool = released_pool(DIAMETER, BOUND, horizon)
    assert torch.allclose(pool[1:], 2 * pool[:-1])
    assert math.isclose(float(pool[0]), 5 / math.sqrt(horizon), rel_tol=1e-5)
    assert pool[-2] <= 5 * (1 + 1e-5)
    assert pool[-1] > 5 * (1 - 1e-5)


def test_the_theorem_has_five_step_sizes_for_a_hundred_timesteps_and_scales_with_the_least_singular_value():
    well, badly = torch.eye(4), torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.1]))
    pool = theorem_pool(DIAMETER, BOUND, well, 100)
    assert torch.allclose(pool, 20 / (2 * 4 * math.sqrt(400)) * torch.tensor([1.0, 2, 4, 8, 16]))
    assert torch.allclose(theorem_pool(DIAMETER, BOUND, badly, 100), 0.1 * pool)
