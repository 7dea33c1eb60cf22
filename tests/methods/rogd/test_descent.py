import pytest
import torch
from hypothesis import given
from torch.func import jacrev

from fedade.maths.priors.reweighting import reweight
from fedade.methods.rogd import class_error_slopes, project_above, steepest_slope

from ...maths.samples import QUICK, generator, is_distribution, labels, seeds, softmax_batch

CLASSES, SAMPLES = 4, 40


@QUICK
@given(seed=seeds)
def test_slopes_are_the_derivatives_of_the_class_errors(seed):
    probabilities = softmax_batch(seed, SAMPLES, CLASSES).double()
    truth = labels(seed, SAMPLES, num_classes=CLASSES)
    weights, source = softmax_batch(seed + 1, CLASSES).double(), softmax_batch(seed + 2, CLASSES).double()

    def errors(vector):
        hits = reweight(probabilities, vector, source).gather(-1, truth.unsqueeze(-1)).squeeze(-1)
        classes = [truth == label for label in range(CLASSES)]
        return torch.stack([1 - (hits * own).sum() / own.sum().clamp(min=1) for own in classes])

    slopes = class_error_slopes(probabilities, truth, weights, source)
    assert torch.allclose(slopes, jacrev(errors)(weights))


def test_a_class_without_samples_has_no_slope():
    truth = torch.tensor([0, 1, 1])
    slopes = class_error_slopes(softmax_batch(0, 3, 3), truth, torch.full((3,), 1 / 3), torch.full((3,), 1 / 3))
    assert slopes[2].tolist() == [0, 0, 0]
    assert slopes.isfinite().all()


@QUICK
@given(seed=seeds)
def test_no_prior_makes_the_gradient_longer_than_the_steepest_slope(seed):
    probabilities, truth = softmax_batch(seed, SAMPLES, CLASSES), labels(seed, SAMPLES, num_classes=CLASSES)
    source, points = torch.full((CLASSES,), 1 / CLASSES), softmax_batch(seed + 1, 5, CLASSES)
    steepest = steepest_slope(probabilities, truth, points, source)
    for point in points:
        gradients = softmax_batch(seed + 2, 20, CLASSES) @ class_error_slopes(probabilities, truth, point, source)
        assert (gradients.norm(dim=-1) <= steepest + 1e-5).all()


@QUICK
@given(seed=seeds)
def test_the_projection_is_the_nearest_distribution_above_the_floor(seed):
    vector, floor = torch.randn(5, generator=generator(seed)), 0.05
    projected = project_above(vector, floor)
    assert is_distribution(projected)
    assert (projected >= floor - 1e-6).all()
    others = floor + (1 - 5 * floor) * softmax_batch(seed + 1, 200, 5, scale=4.0)
    assert ((others - vector).norm(dim=-1) >= (projected - vector).norm() - 1e-6).all()


def test_without_a_floor_it_projects_to_the_simplex():
    assert project_above(torch.tensor([2.0, 0.0]), 0.0).tolist() == pytest.approx([1, 0])
