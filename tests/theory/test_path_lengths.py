import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.theory.equations.regret_bound import (
    cosine_path_length,
    l1_path_length,
    smallest_singular_value,
    surrogate_error_bound,
)

from ..maths.samples import QUICK, seeds, softmax_batch


def straight_path(steps: int, classes: int = 10) -> torch.Tensor:
    """From uniform to one class in equal steps."""
    weights = torch.linspace(0, 1, steps + 1, dtype=torch.float64).unsqueeze(-1)
    return (1 - weights) / classes + weights * torch.eye(classes, dtype=torch.float64)[0]


@pytest.mark.parametrize("steps", [1, 4, 100])
def test_a_straight_path_is_as_long_in_l1_however_it_is_cut(steps):
    assert l1_path_length(straight_path(steps)).item() == pytest.approx(1.8)


def test_the_cosine_length_of_a_straight_path_vanishes_with_its_steps():
    """The counterexample to th:estimate_uncertainty: no calibration error, 0.0116 against 1.80."""
    assert cosine_path_length(straight_path(100)).item() == pytest.approx(0.0116, abs=5e-5)
    assert cosine_path_length(straight_path(1)).item() == pytest.approx(1 - 1 / math.sqrt(10))


def test_a_path_there_and_back_counts_both_ways():
    there = straight_path(7)
    both = torch.cat([there, there.flip(0)[1:]])
    for length in (l1_path_length, cosine_path_length):
        assert length(both).item() == pytest.approx(2 * length(there).item())


def test_who_stands_still_has_no_path():
    still = softmax_batch(0, 3, 1, 6).expand(3, 9, 6)
    for length in (l1_path_length, cosine_path_length):
        assert torch.equal(length(still), torch.zeros(3))


@QUICK
@given(seed=seeds, noise=st.floats(0, 3))
def test_the_cosine_surrogate_is_within_its_error_bound(seed, noise):
    """What the proof of th:estimate_uncertainty does show: Σ(1 − cos) of estimates is near that of the truth."""
    truth = softmax_batch(seed, 4, 12, 6).double()
    estimate = torch.softmax(
        truth.log() + noise * torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed)), -1
    )
    errors = torch.linalg.vector_norm(estimate - truth, dim=-1)
    gap = (cosine_path_length(estimate) - cosine_path_length(truth)).abs()
    bound = surrogate_error_bound(estimate, truth)
    assert (gap <= bound + 1e-12).all()
    assert (bound <= math.sqrt(6) * (errors[:, 1:] + errors[:, :-1]).sum(-1) + 1e-9).all()  # K_cos ≤ √K on priors


def test_an_error_counts_for_the_step_to_it_and_the_step_from_it():
    truth = torch.tensor([[[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [2.0, 0.0]]])
    estimate = truth + torch.tensor([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.0], [0.25, 0.0]]])
    assert surrogate_error_bound(estimate, truth).item() == pytest.approx((0.5 + 0.5 + 0.25) / 2)


def test_the_smallest_singular_value_of_a_scaled_rotation_is_its_scale():
    rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    assert smallest_singular_value(0.3 * rotation) == pytest.approx(0.3)
