import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedade.maths.signals.dynamics import (
    combined_dynamics,
    cosine_distance,
    mean_feature,
    mean_feature_normalised_once,
    mean_prediction,
    prediction_histogram,
    representation_dynamics,
    uncertainty_dynamics,
)

from ..samples import QUICK, generator, is_distribution, seeds, softmax_batch, unit_interval, vectors

SIGNALS = [uncertainty_dynamics, representation_dynamics]


@pytest.mark.parametrize("signal", SIGNALS)
@QUICK
@given(first=vectors(), second=vectors())
def test_a_signal_is_symmetric_and_within_zero_and_one(signal, first, second):
    value = signal(first, second)
    assert 0 <= value <= 1
    assert torch.equal(value, signal(second, first))


@pytest.mark.parametrize("signal", [*SIGNALS, cosine_distance])
@QUICK
@given(vector=vectors())
def test_equal_summaries_have_exactly_no_distance(signal, vector):
    assert signal(vector, vector.clone()) == 0


@QUICK
@given(first=vectors(), second=vectors(), scale=st.floats(1e-25, 1e25))
def test_representation_dynamics_ignores_scale(first, second, scale):
    # An entry that is lost to underflow changes the direction, not only the scale.
    assume(all((v[v != 0].abs() > 1e-3).all() for v in (first, second)))
    scaled = representation_dynamics(first * scale, second)
    assert torch.allclose(scaled, representation_dynamics(first, second), atol=1e-6)


def test_cosine_distance_of_special_vectors():
    east, north, zero = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    pairs = [(east, north, 1), (east, -east, 2), (zero, east, 1), (east, zero, 1), (zero, zero, 0)]
    for first, second, expected in pairs:
        assert cosine_distance(first, second) == expected


@QUICK
@given(seed=seeds)
def test_opposite_directions_have_the_largest_signal_and_no_more(seed):
    features = torch.randn(200, 7, generator=generator(seed))
    moved = representation_dynamics(features, -features)
    assert moved.max() == 1
    assert moved.min() > 1 - 1e-6


def test_cosine_distance_resolves_small_changes():
    angle = 1e-4
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([1.0, angle])
    assert cosine_distance(first, second).item() == pytest.approx(angle**2 / 2, rel=1e-3)


@QUICK
@given(first=vectors(), second=vectors())
def test_cosine_distance_is_the_textbook_one(first, second):
    assume(first.norm() > 1e-3 and second.norm() > 1e-3)
    textbook = 1 - torch.cosine_similarity(first.double(), second.double(), dim=0)
    assert torch.allclose(cosine_distance(first, second).double(), textbook, atol=1e-5)


@QUICK
@given(seed=seeds, n=st.integers(1, 20))
def test_both_prediction_summaries_are_distributions(seed, n):
    probabilities = softmax_batch(seed, 3, n, 7)
    assert is_distribution(mean_prediction(probabilities))
    histogram = prediction_histogram(probabilities)
    assert is_distribution(histogram)
    counts = torch.bincount(probabilities[1].argmax(-1), minlength=7)
    assert torch.allclose(histogram[1] * n, counts.float(), atol=1e-5)


def test_a_long_feature_counts_no_more_than_a_short_one():
    features = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    assert mean_feature(features).tolist() == [0.5, 0.5]
    assert mean_feature_normalised_once(features)[0] > 0.99


@pytest.mark.parametrize("summary", [mean_feature, mean_feature_normalised_once])
def test_zero_features_stay_zero_and_have_finite_gradients(summary):
    features = torch.zeros(4, 3)
    assert torch.equal(summary(features), torch.zeros(3))
    assert torch.isfinite(grad(lambda x: summary(x).sum())(features)).all()


@QUICK
@given(s_unc=unit_interval, s_rep=unit_interval)
def test_a_switched_off_signal_leaves_the_other_alone(s_unc, s_rep):
    first, second = torch.tensor(s_unc), torch.tensor(s_rep)
    assert combined_dynamics(first, second) == (first + second) / 2
    assert combined_dynamics(first, second, use_rep=False) == first
    assert combined_dynamics(first, second, use_unc=False) == second
    assert combined_dynamics(first, second, use_unc=False, use_rep=False) == 0


def test_vmap_equals_batch():
    features = torch.randn(6, 5, 4, generator=generator(0))
    summaries = vmap(mean_feature)(features)
    assert torch.allclose(summaries, mean_feature(features))
    assert torch.equal(vmap(prediction_histogram)(features), prediction_histogram(features))
    moved = vmap(representation_dynamics)(summaries[1:], summaries[:-1])
    assert torch.allclose(moved, representation_dynamics(summaries[1:], summaries[:-1]))
