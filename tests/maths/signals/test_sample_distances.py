import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from fedade.maths.signals.distances import (
    energy_distance,
    kernel_discrepancy,
    mean_coordinate,
    sliced_wasserstein,
)
from fedade.maths.signals.dynamics import directions

from ..samples import QUICK, generator, seeds

SLICES = directions(torch.randn(64, 16, generator=generator(1)))


def sliced(first, second):
    return sliced_wasserstein(first, second, SLICES)


DISTANCES = [sliced, kernel_discrepancy, energy_distance]
each = pytest.mark.parametrize("distance", DISTANCES)


def unit_vectors(seed, *shape, offset=0.0):
    return directions(torch.randn(*shape, generator=generator(seed)) + offset)


@each
@QUICK
@given(seed=seeds, n=st.integers(1, 8), offset=st.floats(0, 5))
def test_a_distance_is_symmetric_within_zero_and_one_and_vanishes_for_equal_sets(distance, seed, n, offset):
    first, second = unit_vectors(seed, n, 16), unit_vectors(seed + 1, n, 16, offset=offset)
    assert 0 < distance(first, second) <= 1
    assert distance(first, second).item() == pytest.approx(distance(second, first).item(), abs=1e-5)
    assert distance(first, first.clone()) == 0
    order = torch.randperm(n, generator=generator(seed))
    assert distance(first, first[order]) < 1e-3, "a set has no order"


@each
def test_zero_features_and_repeated_ones_are_no_trouble(distance):
    nothing, same, other = torch.zeros(8, 16), torch.eye(16)[:1].expand(8, -1), torch.eye(16)[1:2].expand(8, -1)
    assert distance(nothing, nothing) == 0
    assert distance(same, same) == 0
    assert 0 < distance(same, other) <= 1
    assert torch.isfinite(distance(nothing, same))


@each
def test_a_distance_grows_as_one_class_takes_over(distance):
    centres = directions(torch.randn(8, 16, generator=generator(2)))
    noise = 0.05 * torch.randn(32, 16, generator=generator(3))

    def batch(taken):
        classes = torch.where(torch.arange(32) < taken, torch.zeros(32, dtype=torch.long), torch.arange(32) % 8)
        return directions(centres[classes] + noise)

    moved = torch.stack([distance(batch(0), batch(taken)) for taken in range(0, 33, 8)])
    assert moved[0] == 0
    assert (moved.diff() > 0).all()


@each
def test_vmap_equals_batch(distance):
    first, second = unit_vectors(0, 5, 32, 16), unit_vectors(1, 5, 32, 16, offset=1)
    torch.testing.assert_close(vmap(distance)(first, second), distance(first, second))


def test_opposite_clusters_are_as_far_apart_as_slices_can_show():
    cluster = torch.eye(16)[:1].expand(8, -1)
    slices = directions(torch.randn(4096, 16, generator=generator(0)))
    assert sliced_wasserstein(cluster, -cluster, slices).item() == pytest.approx(1, abs=0.03)
    assert slices[:, 0].abs().mean().item() == pytest.approx(mean_coordinate(16), rel=0.03)


def test_slices_agree_with_python_optimal_transport():
    ot = pytest.importorskip("ot")
    first, second = unit_vectors(0, 20, 16).double(), unit_vectors(1, 20, 16, offset=1).double()
    expected = ot.sliced.sliced_wasserstein_distance(
        first.numpy(), second.numpy(), p=1, projections=SLICES.double().T.numpy()
    )
    found = sliced_wasserstein(first, second, SLICES.double())
    assert found.item() == pytest.approx(expected / (2 * mean_coordinate(16)), rel=1e-6)


def test_the_energy_distance_is_the_textbook_one():
    first, second = unit_vectors(0, 6, 16).numpy(), unit_vectors(1, 9, 16, offset=1).numpy()
    across, one, other = (
        np.mean([np.linalg.norm(x - y) for x in left for y in right])
        for left, right in ((first, second), (first, first), (second, second))
    )
    found = energy_distance(torch.from_numpy(first), torch.from_numpy(second))
    assert found.item() == pytest.approx((2 * across - one - other) / (2 * across), rel=1e-4)
