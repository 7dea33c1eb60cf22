import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from accuracy_baselines import (
    accuracy_under,
    average_thresholded_confidence,
    difference_of_confidences,
    isotonic,
    isotonic_chances,
    negative_entropy,
    threshold,
)
from fedade.adapter.accuracy_estimation import (
    chances,
    confidence,
    correct,
    cumulative_shortfall,
    fit_chances,
    half_width,
    log_odds,
    shortfall_limit,
)

from ..maths.samples import QUICK, generator, labels, seeds, softmax_batch


def calibrated(seed: int, spread: float, n: int = 4000, sharpening: float = 1.0) -> tuple[Tensor, Tensor]:
    """Labels drawn from the softmax of normal logits; sharpened predictions are surer than that."""
    logits = spread * torch.randn(n, 10, generator=generator(seed))
    drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator(seed + 1)).squeeze(-1)
    return (sharpening * logits).softmax(-1), drawn


def platt(probabilities: Tensor) -> Tensor:
    """Measurements of which the log odds of being right are a straight line."""
    odds = log_odds(confidence(probabilities))
    return torch.stack([torch.ones_like(odds), odds], -1)


SCORES = {"confidence": confidence, "entropy": negative_entropy}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@QUICK
@given(seed=seeds)
def test_thresholded_confidence_is_exact_on_the_held_out_set(score, seed):
    probabilities, drawn = calibrated(seed, 2.0, n=200)
    right = correct(probabilities, drawn)
    scores = score(probabilities.double())  # in float32 two of 200 may be the same
    estimate = average_thresholded_confidence(scores, threshold(scores, right))
    assert estimate.item() == pytest.approx(right.float().mean().item())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_model_that_is_always_right_or_always_wrong_is_estimated_so(share):
    scores = confidence(softmax_batch(0, 50, 4))
    limit = threshold(scores, torch.full((50,), bool(share)))
    assert average_thresholded_confidence(scores, limit) == share


@QUICK
@given(seed=seeds)
def test_thresholded_confidence_sees_the_order_of_scores_only(seed):
    probabilities, drawn = calibrated(seed, 2.0, n=100)
    right, scores, later = (
        correct(probabilities, drawn),
        confidence(probabilities),
        confidence(softmax_batch(seed, 70, 10)),
    )
    plain = average_thresholded_confidence(later, threshold(scores, right))
    mapped = average_thresholded_confidence(later.exp(), threshold(scores.exp(), right))
    assert plain == mapped


@QUICK
@given(seed=seeds)
def test_with_two_classes_both_scores_are_one_estimator(seed):
    held_out, stream, drawn = (
        softmax_batch(seed, 80, 2).double(),
        softmax_batch(seed + 1, 60, 2).double(),
        labels(seed, 80, num_classes=2),
    )
    first, second = (
        average_thresholded_confidence(score(stream), threshold(score(held_out), correct(held_out, drawn)))
        for score in SCORES.values()
    )
    assert first == second


@QUICK
@given(seed=seeds, share=st.floats(0.1, 0.9))
def test_difference_of_confidences_is_exact_on_the_held_out_set_and_additive(seed, share):
    scores, accuracy = confidence(softmax_batch(seed, 200, 5)).double(), torch.tensor(share, dtype=torch.float64)
    assert difference_of_confidences(scores, scores.mean(), accuracy).item() == pytest.approx(share)
    first, second = scores[:50], scores[50:]
    whole, *parts = (
        difference_of_confidences(one, torch.tensor(0.6).double(), torch.tensor(0.5).double())
        for one in (scores, first, second)
    )
    assert whole.item() == pytest.approx((50 * parts[0] + 150 * parts[1]).item() / 200)


@pytest.mark.parametrize("spread", [4.0, 2.0, 1.0])
def test_confidences_of_a_calibrated_law_tell_its_accuracy_after_any_shift(spread):
    held_out, drawn = calibrated(0, 4.0)
    stream, hidden = calibrated(7, spread)
    accuracy = correct(held_out, drawn).float().mean()
    estimate = difference_of_confidences(confidence(stream), confidence(held_out).mean(), accuracy)
    assert abs(estimate - correct(stream, hidden).float().mean()) < 0.02


@pytest.mark.parametrize("spread", [4.0, 3.0])
def test_chances_undo_predictions_that_are_too_sure(spread):
    held_out, drawn = calibrated(0, 4.0, sharpening=3.0)
    stream, hidden = calibrated(7, spread, sharpening=3.0)
    weights = fit_chances(platt(held_out), correct(held_out, drawn))
    knots = isotonic(confidence(held_out), correct(held_out, drawn))
    actual = correct(stream, hidden).float().mean()
    assert abs(chances(platt(stream), weights).mean() - actual) < 0.04
    assert abs(isotonic_chances(confidence(stream), knots).mean() - actual) < 0.05
    assert confidence(stream).mean() - actual > 0.1


@QUICK
@given(seed=seeds)
def test_fitted_chances_have_the_mean_that_was_seen(seed):
    probabilities, drawn = calibrated(seed, 2.0, n=300)
    right = correct(probabilities, drawn)
    fitted = chances(platt(probabilities), fit_chances(platt(probabilities), right, ridge=1e-6)).mean()
    assert fitted.item() == pytest.approx(right.float().mean().item(), abs=1e-3)
    knots = isotonic(confidence(probabilities), right)
    assert knots[1].mean().item() == pytest.approx(right.float().mean().item(), abs=1e-5)
    assert (knots[1].diff() >= 0).all()


def test_chances_are_finite_where_nothing_is_wrong():
    probabilities = softmax_batch(3, 100, 4)
    weights = fit_chances(platt(probabilities), torch.ones(100, dtype=torch.bool))
    assert torch.isfinite(weights).all()
    assert chances(platt(probabilities), weights).mean() > 0.9


def test_the_held_out_prior_gives_the_held_out_accuracy():
    probabilities, drawn = calibrated(0, 2.0, n=500)
    prior = torch.bincount(drawn, minlength=10) / 500
    accuracy, mean = accuracy_under(prior, probabilities, drawn, prior)
    assert accuracy.item() == pytest.approx(correct(probabilities, drawn).float().mean().item())
    assert mean.item() == pytest.approx(confidence(probabilities).mean().item())


def test_one_class_alone_is_never_mistaken():
    probabilities, drawn = calibrated(0, 2.0, n=500)
    accuracy, mean = accuracy_under(torch.eye(10)[4], probabilities, drawn, torch.full((10,), 0.1))
    assert accuracy == 1
    assert mean == 1


def test_the_accuracy_under_a_prior_is_that_of_a_stream_with_it():
    held_out, drawn = calibrated(0, 2.0, n=20000)
    prior = torch.tensor([0.5, 0.3, 0.1, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7])
    stream, hidden = calibrated(9, 2.0, n=20000)
    rows = torch.multinomial(prior[hidden], 4000, replacement=True, generator=generator(1))
    source = torch.full((10,), 0.1)
    decided = stream[rows] * prior / source
    expected, _ = accuracy_under(prior, held_out, drawn, source)
    assert abs(expected - correct(decided, hidden[rows]).float().mean()) < 0.03


def test_an_interval_narrows_with_samples_down_to_the_bias():
    spread, bias = torch.tensor(0.3), torch.tensor(0.01)
    widths = [half_width(spread, torch.tensor(n), bias, 1.64).item() for n in (1.0, 100.0, 1e9)]
    assert widths[0] > widths[1] > widths[2] == pytest.approx(0.0164)
    assert not math.isinf(half_width(spread, torch.tensor(0.0), bias, 1.64).item())


@QUICK
@given(seed=seeds, before=st.floats(0, 3))
def test_pages_sum_does_not_depend_on_how_samples_are_cut(seed, before):
    excesses = torch.randn(40, generator=generator(seed)).double()
    expected = before
    for excess in excesses.tolist():
        expected = max(0.0, expected + excess)
    total = torch.tensor(before, dtype=torch.float64)
    whole = cumulative_shortfall(total, excesses)
    for part in (*excesses.split(7), excesses[:0]):
        total = cumulative_shortfall(total, part)
    assert whole.item() == pytest.approx(expected, abs=1e-9)
    assert total.item() == pytest.approx(expected, abs=1e-9)


def test_pages_sum_exceeds_its_limit_as_seldom_as_was_asked():
    scores = confidence(calibrated(0, 4.0)[0])
    limit = shortfall_limit(scores.mean() - scores - 0.05, 2e3)
    resampled = scores[torch.randint(len(scores), (60, 500), generator=generator(1))]
    raised = [(_highest(scores.mean() - row - 0.05) > limit).item() for row in resampled]
    assert sum(raised) / len(raised) < 500 / 2e3


@QUICK
@given(seed=seeds, scale=st.floats(0.1, 10))
def test_the_limit_scales_with_the_excesses(seed, scale):
    excesses = torch.randn(50, generator=generator(seed)).double() - 1
    assert shortfall_limit(scale * excesses, 1e3).item() == pytest.approx(
        scale * shortfall_limit(excesses, 1e3).item(), rel=1e-3
    )


def _highest(excesses: Tensor) -> Tensor:
    total, highest = torch.zeros(()), torch.zeros(())
    for excess in excesses:
        total = cumulative_shortfall(total, excess[None])
        highest = torch.maximum(highest, total)
    return highest


def test_vmap_equals_one_after_the_other():
    probabilities, drawn = calibrated(0, 2.0, n=100)
    priors = softmax_batch(1, 3, 10)
    singly = torch.stack([accuracy_under(prior, probabilities, drawn, torch.full((10,), 0.1))[0] for prior in priors])
    together = vmap(lambda prior: accuracy_under(prior, probabilities, drawn, torch.full((10,), 0.1))[0])(priors)
    assert torch.allclose(together, singly)
