import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedade.methods.uda.alignment import coral_distance, mmd_distance

from ...maths.samples import QUICK, generator, seeds


def features(seed: int, size: int, shift: float = 0.0, scale: float = 1.0) -> torch.Tensor:
    return shift + scale * torch.randn(size, 6, generator=generator(seed))


@QUICK
@given(seed=seeds, size=st.integers(1, 12))
def test_coral_is_0_for_equal_samples_and_never_negative(seed, size):
    one, other = features(seed, size), features(seed + 1, 7, shift=1)
    assert coral_distance(one, one) == 0
    assert coral_distance(one, other) >= 0
    assert torch.allclose(coral_distance(one, other), coral_distance(other, one))


@QUICK
@given(seed=seeds)
def test_coral_is_the_printed_formula(seed):
    one, other = features(seed, 9), features(seed + 1, 7, scale=2)
    means = (one.mean(0) - other.mean(0)).square().mean()
    assert torch.allclose(coral_distance(one, other), means + (one.T.cov() - other.T.cov()).square().mean(), rtol=1e-4)


@QUICK
@given(seed=seeds)
def test_mmd_is_the_sum_over_pairs(seed):
    one, other = features(seed, 5), features(seed + 1, 4, shift=0.5)
    both = torch.cat([one, other])
    scale = torch.cdist(both, both).square().mean()

    def kernel(a, b):
        return sum(torch.exp(-(a - b).square().sum() / (2 * width * scale)) for width in (0.5, 1.0, 2.0))

    def pairs(values):
        return sum(kernel(a, b) for i, a in enumerate(values) for j, b in enumerate(values) if i != j)

    across = sum(kernel(a, b) for a in one for b in other)
    expected = pairs(one) / 20 + pairs(other) / 12 - 2 * across / 20
    assert torch.allclose(mmd_distance(one, other), expected, atol=1e-4)


def test_mmd_is_unbiased_for_equal_laws_and_grows_with_the_shift():
    alike = torch.stack([mmd_distance(features(seed, 10), features(seed + 500, 10)) for seed in range(200)])
    assert alike.mean().abs() < 3 * alike.std() / 200**0.5
    shifts = [mmd_distance(features(1, 30), features(2, 30, shift=shift)) for shift in (0.0, 0.5, 1.0, 2.0)]
    assert shifts == sorted(shifts)


@pytest.mark.parametrize("distance", [coral_distance, mmd_distance])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (5, 1)])
def test_one_sample_and_zero_features_are_finite(distance, sizes):
    for scale in (0.0, 1.0):
        one, other = features(0, sizes[0], scale=scale), features(1, sizes[1], scale=scale)
        assert torch.isfinite(distance(one, other))
        assert torch.isfinite(grad(distance)(one, other)).all()


@pytest.mark.parametrize("distance", [coral_distance, mmd_distance])
def test_vmap_equals_each_alone(distance):
    ones, other = torch.stack([features(seed, 5) for seed in range(3)]), features(9, 4)
    together = vmap(distance, in_dims=(0, None))(ones, other)
    assert torch.allclose(together, torch.stack([distance(one, other) for one in ones]), atol=1e-6)
