import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, wasserstein_distance
from torch.func import vmap

from fedade.maths.signals.distances import (
    SMOOTHING,
    hellinger,
    index_wasserstein,
    jeffreys_distance,
    jensen_shannon,
    kl_distance,
    total_variation,
    without_noise_floor,
)
from fedade.maths.signals.dynamics import uncertainty_dynamics

from ..samples import QUICK, seeds, softmax_batch, unit_interval

DISTANCES = [
    uncertainty_dynamics,
    kl_distance,
    jeffreys_distance,
    jensen_shannon,
    hellinger,
    total_variation,
    index_wasserstein,
]
each = pytest.mark.parametrize("distance", DISTANCES, ids=lambda distance: distance.__name__)

# Zeros included: a histogram has them.
distributions = (
    st.lists(st.integers(0, 5), min_size=6, max_size=6)
    .filter(any)
    .map(lambda counts: torch.tensor(counts, dtype=torch.float32) / sum(counts))
)


@each
@QUICK
@given(first=distributions, second=distributions)
def test_a_distance_is_within_zero_and_one_and_vanishes_for_equal_distributions(distance, first, second):
    assert 0 <= distance(first, second) <= 1
    assert distance(first, first.clone()) == 0


@pytest.mark.parametrize("distance", [d for d in DISTANCES if d is not kl_distance])
@QUICK
@given(first=distributions, second=distributions)
def test_all_but_kl_are_symmetric(distance, first, second):
    assert distance(first, second).item() == pytest.approx(distance(second, first).item(), abs=1e-6)


@each
@pytest.mark.parametrize("towards", [0, 3, 9])
def test_a_distance_grows_along_a_shift_from_uniform_to_one_class(distance, towards):
    uniform, one_class = torch.full((10,), 0.1), torch.eye(10)[towards]
    path = torch.stack([(1 - weight) * uniform + weight * one_class for weight in torch.linspace(0, 1, 21)])
    moved = distance(uniform.expand_as(path), path)
    assert moved[0] < 1e-6
    assert (moved.diff() > 0).all()


@pytest.mark.parametrize("distance", [jensen_shannon, hellinger, total_variation, uncertainty_dynamics])
def test_distributions_without_a_common_class_are_as_far_apart_as_can_be(distance):
    first, second = torch.tensor([0.5, 0.5, 0, 0]), torch.tensor([0, 0, 0.2, 0.8])
    assert distance(first, second).item() == pytest.approx(1, abs=1e-6)


@QUICK
@given(seed=seeds)
def test_distances_are_the_textbook_ones(seed):
    first, second = (part / part.sum() for part in softmax_batch(seed, 2, 7).double())
    smooth = [(part + SMOOTHING).numpy() for part in (first, second)]
    kl = entropy(*smooth)
    assert kl_distance(first, second).item() == pytest.approx(1 - math.exp(-kl))
    jeffreys = (kl + entropy(*reversed(smooth))) / 2
    assert jeffreys_distance(first, second).item() == pytest.approx(1 - math.exp(-jeffreys))
    assert jensen_shannon(first, second).item() == pytest.approx(jensenshannon(first, second, base=2) ** 2)
    assert hellinger(first, second).item() == pytest.approx(math.sqrt(1 - (first * second).sqrt().sum()))
    moved = wasserstein_distance(range(7), range(7), first, second) / 6
    assert index_wasserstein(first, second).item() == pytest.approx(moved)


def test_kl_is_bounded_where_a_class_has_vanished():
    here, there = torch.eye(1000)[:2]
    assert kl_distance(here, there) <= 1 - SMOOTHING / (1 + SMOOTHING) + 1e-6


@each
def test_vmap_equals_batch(distance):
    first, second = softmax_batch(0, 2, 5, 7)
    torch.testing.assert_close(vmap(distance)(first, second), distance(first, second))


@QUICK
@given(distance=unit_interval, previous=unit_interval, current=unit_interval)
def test_the_noise_floor_only_ever_lowers_a_signal(distance, previous, current):
    moved = without_noise_floor(*(torch.tensor(value) for value in (distance, previous, current)))
    assert 0 <= moved <= distance
    assert without_noise_floor(moved, torch.zeros(()), torch.zeros(())) == moved
