import math

import torch
from torch.func import grad

from fedade.methods.unida import entropy_separation, middle_entropy, prototype_similarities

from ...maths.samples import is_distribution


def test_the_middle_is_half_the_largest_entropy():
    assert math.isclose(middle_entropy(10), 1.15, abs_tol=2e-3)


def test_separation_pushes_entropies_away_from_the_middle_and_leaves_the_near_ones():
    entropies = torch.tensor([0.1, 0.9, 1.1, 1.9])
    everyone = torch.ones(4, dtype=torch.bool)
    slope = grad(lambda values: entropy_separation(values, 1.0, 0.5, everyone))(entropies)
    assert slope[0] > 0  # descent lowers a low entropy
    assert slope[3] < 0  # and raises a high one
    assert slope[1:3].tolist() == [0, 0]
    chosen = torch.tensor([False, True, True, True])
    assert grad(lambda values: entropy_separation(values, 1.0, 0.5, chosen))(entropies)[0] == 0


def test_an_absent_class_takes_no_share():
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    shares = prototype_similarities(torch.tensor([[-1.0, -1.0], [0.0, 0.0]]), prototypes)
    assert shares[:, 1].tolist() == [0, 0]
    assert is_distribution(shares)
