"""What a change of class mix explains, and what it does not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.maths.class_moments import LASTING, Residuals, class_moments, explained_share, unexplained_shift

from .samples import QUICK

CLASSES, CHANNELS = 4, 6


def nothing(conditions: int = 1) -> Residuals:
    """No residual of any condition."""
    return Residuals(
        torch.zeros(conditions, CHANNELS, dtype=torch.float64), torch.zeros(conditions, dtype=torch.float64)
    )


NOTHING = nothing()
FLAT = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)


def samples(seed: int, number: int, apart: float = 3.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values of labelled samples whose classes lie `apart`, and the classes' centres."""
    generator = torch.Generator().manual_seed(seed)
    centres = apart * torch.randn(CLASSES, CHANNELS, generator=generator, dtype=torch.float64)
    labels = torch.arange(number) % CLASSES
    return centres[labels] + torch.randn(number, CHANNELS, generator=generator, dtype=torch.float64), labels, centres


@QUICK
@given(st.integers(0, 1000))
def test_class_means_are_found_and_noise_is_drawn_together(seed):
    values, labels, centres = samples(seed, 4000)
    found = class_moments(values, labels, CLASSES)
    torch.testing.assert_close(found.means, centres, atol=0.2, rtol=0)
    torch.testing.assert_close(found.within, torch.ones_like(found.within), atol=0.15, rtol=0)
    noise, labels, _ = samples(seed, 40, apart=0.0)
    drawn = class_moments(noise, labels, CLASSES).means
    raw = torch.stack([noise[labels == label].mean(0) for label in range(CLASSES)])
    assert (drawn - drawn.mean(0)).norm() < (raw - raw.mean(0)).norm()


def test_a_class_without_samples_has_the_common_mean():
    values, labels, _ = samples(0, 300)
    seen = labels != 2
    found = class_moments(values[seen], labels[seen], CLASSES)
    torch.testing.assert_close(found.means[2], found.means[[0, 1, 3]].mean(0))
    assert found.means.isfinite().all()


def test_the_explained_share_grows_with_the_distance_of_the_classes():
    shares = [float(explained_share(class_moments(*samples(1, 2000, apart)[:2], CLASSES))) for apart in (0, 0.3, 1, 5)]
    assert shares == sorted(shares)
    assert shares[0] < 0.01
    assert shares[-1] > 0.9


@QUICK
@given(st.integers(0, 1000), st.integers(0, CLASSES - 1))
def test_another_class_mix_is_no_shift_and_other_inputs_are(seed, only):
    values, labels, _ = samples(seed, 4000)
    moments = class_moments(values[:2000], labels[:2000], CLASSES)
    batch = values[2000:][labels[2000:] == only][:50]
    prior = torch.nn.functional.one_hot(torch.tensor(only), CLASSES).double()
    doubt = 8.0  # of six channels' mean ratio, less than one in a million by chance
    assert unexplained_shift(batch.mean(0), 50, prior, moments, doubt, NOTHING)[0].trust == 0
    moved, _ = unexplained_shift(batch.mean(0) + 5, 50, prior, moments, doubt, NOTHING)
    assert moved.trust > 0.9
    torch.testing.assert_close(moved.size, torch.full_like(moved.size, 5.0), atol=1.0, rtol=0)


@QUICK
@given(st.integers(0, 1000), st.floats(0.1, 3))
def test_without_doubt_the_whole_residual_is_kept(seed, offset):
    values, labels, _ = samples(seed, 400)
    moments = class_moments(values, labels, CLASSES)
    past = Residuals(torch.ones_like(NOTHING.sizes), torch.full_like(NOTHING.samples, 400.0))
    for known in (NOTHING, past):
        found, residual = unexplained_shift(values.mean(0) + offset, 50, FLAT, moments, 0.0, known)
        torch.testing.assert_close(found.size, values.mean(0) + offset - moments.means.mean(0))
        assert residual.samples == 50


@pytest.mark.parametrize("larger", [1.0, 2.0, 10.0])
def test_more_doubt_never_believes_more(larger):
    values, labels, _ = samples(3, 400)
    moments = class_moments(values, labels, CLASSES)
    trusts = [
        unexplained_shift(values[:50].mean(0) + 0.5, 50, FLAT, moments, doubt, NOTHING)[0].trust
        for doubt in (0.5, larger)
    ]
    assert trusts[1] <= trusts[0]


def remembering(offsets: list[float], doubt: float = 2.5, conditions: int = 1):
    """Shift and residuals after batches of 40 samples, each moved by its offset, one after the other."""
    values, labels, _ = samples(5, 4000)
    moments, residual, found = class_moments(values[:2000], labels[:2000], CLASSES), nothing(conditions), []
    for place, offset in enumerate(offsets):
        batch = values[2000 + 40 * place : 2040 + 40 * place]
        shift, residual = unexplained_shift(batch.mean(0) + offset, 40, FLAT, moments, doubt, residual)
        found.append((shift, residual))
    return found


def test_batches_that_agree_add_up_and_are_believed_more():
    found = remembering([0.4] * 8)
    assert float(found[-1][1].samples) > 200
    assert found[-1][0].trust > found[0][0].trust
    errors = [float((residual.sizes - 0.4).norm()) for _, residual in (found[0], found[-1])]
    assert errors[1] < errors[0]


def test_past_residuals_are_dropped_when_something_changes():
    *_, (shift, residual) = remembering([3.0] * 6 + [0.0])
    assert 40 <= float(residual.samples) < 45
    assert float(shift.size.abs().max()) < 0.6


def test_without_a_shift_memory_brings_none():
    assert all(shift.trust == 0 for shift, _ in remembering([0.0] * 12))


def test_a_condition_that_comes_back_is_known_at_once():
    there_and_back = [3.0] * 6 + [0.0] * 6 + [3.0]
    errors = {}
    for conditions in (1, 2):
        *_, (shift, residuals) = remembering(there_and_back, conditions=conditions)
        errors[conditions] = float((shift.size - 3.0).norm())
    assert errors[2] < errors[1]
    assert residuals.samples.min() > 150
    torch.testing.assert_close(
        residuals.sizes.mean(-1).sort().values, torch.tensor([0.0, 3.0]).double(), atol=0.3, rtol=0
    )


def test_a_new_condition_takes_the_place_of_the_one_with_the_fewest_samples():
    *_, (_, residuals) = remembering([3.0] * 6 + [0.0] + [-3.0], conditions=2)
    torch.testing.assert_close(
        residuals.sizes.mean(-1).sort().values, torch.tensor([-3.0, 3.0]).double(), atol=0.5, rtol=0
    )


def test_conditions_that_are_not_met_fade():
    found = remembering([3.0] * 6 + [0.0] * 10, conditions=3)
    met, later = found[5][1].samples, found[-1][1].samples
    assert later[0] == pytest.approx(LASTING**10 * met[0])
    assert later[1] > met[1] == 0
    assert later[2] == 0
