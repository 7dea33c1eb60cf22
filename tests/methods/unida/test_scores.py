import math

import torch
from hypothesis import given
from torch.func import grad

from fedade.methods.unida.scores import (
    balanced_weights,
    entropy_separation,
    middle_entropy,
    neighbourhood_entropy,
    prototype_similarities,
    source_transferability,
)

from ...maths.samples import QUICK, is_distribution, vectors


def test_the_middle_is_half_the_largest_entropy():
    assert math.isclose(middle_entropy(10), 1.15, abs_tol=2e-3)


def test_separation_pushes_entropies_away_from_the_middle_and_leaves_the_near_ones():
    entropies = torch.tensor([0.1, 0.9, 1.1, 1.9])
    slope = grad(lambda values: entropy_separation(values, 1.0, 0.5))(entropies)
    assert slope[0] > 0  # descent lowers a low entropy
    assert slope[3] < 0  # and raises a high one
    assert slope[1:3].tolist() == [0, 0]
    chosen = torch.tensor([False, True, True, True])
    assert grad(lambda values: entropy_separation(values, 1.0, 0.5, chosen))(entropies)[0] == 0


def test_a_clear_neighbour_gives_low_entropy_and_none_gives_0():
    features = torch.eye(3)[:2]
    nobody = torch.zeros(2, 3, dtype=torch.bool)
    assert neighbourhood_entropy(features, torch.eye(3), nobody) == 0
    clear = neighbourhood_entropy(features, torch.eye(3), ~nobody)
    torn = neighbourhood_entropy(features, torch.ones(3, 3), ~nobody)
    assert clear < 1e-3 < torn
    assert math.isclose(torn, math.log(3), rel_tol=1e-4)


def test_a_forbidden_neighbour_counts_nothing():
    features, neighbours = torch.eye(3)[:1], torch.eye(3)
    allowed = torch.tensor([[False, True, True]])
    assert math.isclose(neighbourhood_entropy(features, neighbours, allowed), math.log(2), rel_tol=1e-4)


def test_an_absent_class_takes_no_share():
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    shares = prototype_similarities(torch.tensor([[-1.0, -1.0], [0.0, 0.0]]), prototypes)
    assert shares[:, 1].tolist() == [0, 0]
    assert is_distribution(shares)


@QUICK
@given(logits=vectors(-20, 20))
def test_transferability_lies_between_minus_1_and_1(logits):
    for probability in (0.0, 0.3, 1.0):
        found = source_transferability(logits[None], torch.tensor([probability]), 10.0)
        assert -1 - 1e-5 <= found <= 1 + 1e-5


def test_an_unsure_sample_of_the_target_like_kind_is_most_transferable():
    logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    unsure, sure = source_transferability(logits, torch.tensor([0.2, 0.2]), 1.0)
    assert unsure > sure


@QUICK
@given(values=vectors())
def test_balanced_weights_have_mean_1(values):
    weights = balanced_weights(values)
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert math.isclose(weights.mean(), 1, rel_tol=1e-3)


def test_equal_values_weigh_the_same():
    assert balanced_weights(torch.tensor([3.0])).tolist() == [1]
    assert balanced_weights(torch.zeros(3)).tolist() == [1, 1, 1]
