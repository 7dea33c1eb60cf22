"""What a change of class mix explains, and what it does not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.methods.fed_ade_plus.class_moments import (
    SHARE_DOUBT,
    Shift,
    believed,
    class_moments,
    expected_under,
    explained_share,
)
from fedade.methods.fed_ade_plus.conditions import Residual

from ...maths.samples import QUICK

CLASSES, CHANNELS = 4, 6


FLAT = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)


def shift(mean: torch.Tensor, prior: torch.Tensor, moments, doubt: float, number: int = 50) -> Shift:
    """What is believed of one batch alone."""
    expected = expected_under(prior, moments)
    samples = torch.tensor(float(number), dtype=torch.float64)
    return believed(Residual(mean - expected.mean, samples), expected, doubt)


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


def test_few_labelled_samples_make_the_explained_share_neither_smaller_nor_greater():
    """Means that were drawn together for being noisy are as far apart as the classes are, not less."""
    many, few = (
        torch.stack(
            [explained_share(class_moments(*samples(seed, number, apart=0.6)[:2], CLASSES)) for seed in range(200)]
        ).mean()
        for number in (4000, 5 * CLASSES)
    )
    assert abs(float(few - many)) < 0.02


def test_the_greatest_share_comes_down_to_the_explained_one_as_samples_come_in():
    margins = []
    for number in (20, 200, 20_000):
        moments = class_moments(*samples(0, number, apart=0.6)[:2], CLASSES)
        margins.append(float(explained_share(moments, SHARE_DOUBT) - explained_share(moments)))
    assert margins[0] > margins[1] > margins[2] > 0
    assert margins[2] < 0.005


@QUICK
@given(st.integers(0, 1000), st.integers(0, CLASSES - 1))
def test_another_class_mix_is_no_shift_and_other_inputs_are(seed, only):
    values, labels, _ = samples(seed, 4000)
    moments = class_moments(values[:2000], labels[:2000], CLASSES)
    batch = values[2000:][labels[2000:] == only][:50]
    prior = torch.nn.functional.one_hot(torch.tensor(only), CLASSES).double()
    doubt = 8.0  # of six channels' mean ratio, less than one in a million by chance
    assert shift(batch.mean(0), prior, moments, doubt).trust == 0
    moved = shift(batch.mean(0) + 5, prior, moments, doubt)
    assert moved.trust > 0.9
    torch.testing.assert_close(moved.size, torch.full_like(moved.size, 5.0), atol=1.0, rtol=0)


@QUICK
@given(st.integers(0, 1000), st.floats(0.1, 3))
def test_without_doubt_the_whole_residual_is_kept(seed, offset):
    values, labels, _ = samples(seed, 400)
    moments = class_moments(values, labels, CLASSES)
    found = shift(values.mean(0) + offset, FLAT, moments, 0.0)
    torch.testing.assert_close(found.size, values.mean(0) + offset - moments.means.mean(0))


@pytest.mark.parametrize("larger", [1.0, 2.0, 10.0])
def test_more_doubt_never_believes_more(larger):
    values, labels, _ = samples(3, 400)
    moments = class_moments(values, labels, CLASSES)
    trusts = [shift(values[:50].mean(0) + 0.5, FLAT, moments, doubt).trust for doubt in (0.5, larger)]
    assert trusts[1] <= trusts[0]


def test_more_samples_behind_a_residual_are_believed_more():
    values, labels, _ = samples(3, 400)
    moments = class_moments(values, labels, CLASSES)
    trusts = [shift(values.mean(0) + 0.3, FLAT, moments, 2.0, number).trust for number in (20, 50, 400)]
    assert trusts == sorted(trusts)
    assert trusts[0] < trusts[-1]


def test_the_error_of_a_prior_is_no_change_of_inputs_however_often_it_was_seen():
    """A prior counted on 50 samples misleads 400 remembered ones all the same way."""
    trusts = {50.0: [], math.inf: []}
    for seed in range(40):
        values, labels, centres = samples(seed, 4000)
        moments = class_moments(values, labels, CLASSES)
        counted = torch.randint(CLASSES, (50,), generator=torch.Generator().manual_seed(seed)).bincount(
            minlength=CLASSES
        )
        for known_from, found in trusts.items():
            expected = expected_under(counted.double() / 50, moments, known_from)
            residual = Residual(centres.mean(0) - expected.mean, torch.tensor(400.0, dtype=torch.float64))
            found.append(float(believed(residual, expected, 2.0).trust))
    assert np.mean(trusts[50.0]) < 0.1
    assert np.mean(trusts[math.inf]) > 0.5, "it would be believed"


def test_several_moments_side_by_side_are_those_of_each_alone():
    values, labels, _ = samples(5, 300)
    both = torch.stack([values, values.square()])
    together, alone = class_moments(both, labels, CLASSES), [class_moments(one, labels, CLASSES) for one in both]
    prior = torch.arange(1, CLASSES + 1, dtype=torch.float64) / 10
    for place, one in enumerate(alone):
        torch.testing.assert_close(together.means[place], one.means)
        torch.testing.assert_close(together.within[place], one.within)
        for mine, its in zip(expected_under(prior, together), expected_under(prior, one), strict=True):
            torch.testing.assert_close(mine[place], its)
