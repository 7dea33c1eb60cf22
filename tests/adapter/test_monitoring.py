import pytest
import torch
from torch import Tensor

from fedade.adapter.monitoring import WINDOW, FittedMonitor
from fedade.adapter.simulated_drift import Rehearsal, disturbed
from fedade.maths.priors.reweighting import reweight

from ..maths.samples import generator

NUM_CLASSES, BATCH = 10, 50


def drawn(seed: int, spread: float, n: int, sharpening: float = 1.0) -> tuple[Tensor, Tensor]:
    """Predictions, and labels of a law in which they are right as often as they say, before they are sharpened."""
    logits = spread * torch.randn(n, NUM_CLASSES, generator=generator(seed))
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator(seed + 1)).squeeze(-1)
    return (sharpening * logits).softmax(-1), labels


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    return (probabilities.argmax(-1) == labels).float().mean().item()


HELD_OUT = drawn(0, 6.0, 2500)
MONITOR = FittedMonitor.fit(*HELD_OUT)


def followed(monitor: FittedMonitor, probabilities: Tensor, size: int = BATCH):
    state, estimates = monitor.begin(), []
    for batch in probabilities.split(size):
        state, estimate = monitor.update(state, batch, {})
        estimates.append(estimate)
    return state, estimates


def test_no_alarm_in_two_hundred_windows_without_a_shift():
    stream, _ = drawn(11, 6.0, 200 * WINDOW)
    assert not any(estimate.alarm for estimate in followed(MONITOR, stream)[1])


@pytest.mark.parametrize("seed", range(20, 30))
def test_a_loss_of_ten_points_is_noticed_within_five_batches_and_forgotten_after(seed):
    before, known = drawn(seed, 6.0, WINDOW)
    after, hidden = drawn(seed + 50, 2.8, 5 * BATCH)
    back, _ = drawn(seed + 90, 6.0, 2 * WINDOW)
    assert accuracy(before, known) - accuracy(after, hidden) > 0.1
    estimates = followed(MONITOR, torch.cat([before, after, back]))[1]
    raised = [bool(estimate.alarm) for estimate in estimates]
    assert not any(raised[:10])
    assert raised[14]
    assert not raised[-1]
    assert "points below" in estimates[14].reason
    assert not estimates[0].reason


@pytest.mark.parametrize("spread", [6.0, 3.0, 1.5])
def test_the_interval_holds_the_accuracy_of_a_calibrated_stream(spread):
    stream, hidden = drawn(5, spread, WINDOW)
    estimate = followed(MONITOR, stream)[1][-1]
    assert estimate.interval[0] <= accuracy(stream, hidden) <= estimate.interval[1]
    assert estimate.interval[0] <= estimate.estimated_accuracy <= estimate.interval[1]


def under_a_wrong_prior(spread: float) -> tuple[float, Tensor]:
    """Accuracy, and the interval where classes are as they were while half of them are believed to be of one."""
    stream, hidden = drawn(5, spread, WINDOW)
    prior = torch.full((NUM_CLASSES,), 0.5 / (NUM_CLASSES - 1))
    prior[0] = 0.5
    monitor = MONITOR._replace(uncertainty=torch.tensor(0.1))  # as after a rehearsal
    state, believed = monitor.begin(), reweight(stream, prior, monitor.mean_prediction)
    for batch in believed.split(BATCH):
        state, estimate = monitor.update(state, batch, {"prior": prior})
    return accuracy(believed, hidden), estimate.interval


def test_the_interval_holds_the_accuracy_where_unsure_predictions_made_a_wrong_prior():
    found, interval = under_a_wrong_prior(3.0)
    assert interval[0] <= found <= interval[1]
    sure, narrow = under_a_wrong_prior(6.0)
    assert narrow.diff() < 0.07 < interval.diff()
    assert abs(sure - narrow.mean()) < 0.05


def test_the_cut_into_batches_matters_for_the_shape_of_nothing():
    stream, _ = drawn(5, 6.0, 2 * WINDOW + 7)
    states = {size: followed(MONITOR, stream, size) for size in (1, 7, 50, 2000)}
    for size, (state, estimates) in states.items():
        assert [part.shape for part in state] == [part.shape for part in MONITOR.begin()], size
        assert abs(estimates[-1].estimated_accuracy - states[50][1][-1].estimated_accuracy) < 0.01


def test_an_empty_batch_changes_nothing():
    state, _ = followed(MONITOR, drawn(5, 6.0, 120)[0])
    again, estimate = MONITOR.update(state, torch.empty(0, NUM_CLASSES), {})
    assert all(torch.equal(*pair) for pair in zip(state, again, strict=True))
    assert torch.isfinite(estimate.interval).all()


def test_what_is_expected_under_the_held_out_frequencies_is_the_held_out_accuracy():
    prior = torch.bincount(HELD_OUT[1], minlength=NUM_CLASSES) / len(HELD_OUT[1])
    monitor = FittedMonitor.fit(*HELD_OUT, mean_prediction=prior)
    assert monitor.expected(prior)[1].item() == pytest.approx(accuracy(*HELD_OUT), abs=1e-5)


def test_a_rehearsal_teaches_that_confidence_overstates_accuracy():
    spreads = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.5]).repeat_interleave(8)
    # The further the law moves, the surer predictions are beyond what is right.
    batches = [drawn(100 + row, spread, BATCH, (6 / spread) ** 0.5) for row, spread in enumerate(spreads.tolist())]
    prior = HELD_OUT[0].mean(0).expand(len(batches), -1)
    rehearsal = Rehearsal(
        *(torch.stack(part) for part in zip(*batches, strict=True)),
        prior,
        torch.arange(6).repeat_interleave(8),
        torch.zeros(len(batches), 2, 0),
    )
    stream, hidden = drawn(7, 2.5, WINDOW, (6 / 2.5) ** 0.5)
    naive, taught = (
        followed(monitor, stream)[1][-1].estimated_accuracy
        for monitor in (MONITOR, FittedMonitor.fit(*HELD_OUT, rehearsal=rehearsal))
    )
    assert naive - accuracy(stream, hidden) > 0.08
    assert abs(taught - accuracy(stream, hidden)) < 0.04


def test_disturbances_keep_type_and_shape():
    images = torch.randint(0, 256, (4, 3, 8, 8), generator=generator(0)).to(torch.uint8)
    for inputs in (images, images / 255, torch.randn(6, 5, generator=generator(1)), torch.arange(12).view(3, 4)):
        for kind in ("none", "noise", "blur", "contrast", "brightness"):
            changed = disturbed(inputs, kind, 1, seed=3)
            assert changed.shape == inputs.shape
            assert changed.dtype == inputs.dtype
    assert torch.equal(disturbed(images, "none", 1, 3), images)
    assert disturbed(images, "blur", 1, 3).float().std() < images.float().std()
