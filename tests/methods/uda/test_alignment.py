import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedade.methods.uda import coral_distance

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


@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (5, 1)])
def test_one_sample_and_zero_features_are_finite(sizes):
    for scale in (0.0, 1.0):
        one, other = features(0, sizes[0], scale=scale), features(1, sizes[1], scale=scale)
        assert torch.isfinite(coral_distance(one, other))
        assert torch.isfinite(grad(coral_distance)(one, other)).all()


def test_vmap_equals_each_alone():
    ones, other = torch.stack([features(seed, 5) for seed in range(3)]), features(9, 4)
    together = vmap(coral_distance, in_dims=(0, None))(ones, other)
    assert torch.allclose(together, torch.stack([coral_distance(one, other) for one in ones]), atol=1e-6)
