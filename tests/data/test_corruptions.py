"""CIFAR-C corruptions: addressed randomness, fidelity to the reference, strength, bad input."""

import colorsys
import math
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from natural_images import IMAGES, Pixels, natural_images
from scipy import ndimage

from fedade.core.errors import FedadeError
from fedade.data.corruptions import blur, digital, pixels, registry
from fedade.data.corruptions.pixels import levels, unit
from fedade.data.corruptions.registry import CORRUPTIONS, PUBLISHED, STANDARD, corrupt, corrupted_pool
from fedade.data.corruptions.weather import frost_textures

NOT_MONOTONE = {
    "glass_blur": "severities 1 to 3 blur more and displace as much; severity 5 blurs away some of 4",
    "motion_blur": "severities 3 and 4 have one sigma, and angles are drawn afresh",
    "frost": "from severity 3 the image is dimmed more as frost is added, and the two cancel in part",
    "elastic_transform": "the affine map, which moves pixels most, weakens as the displacement grows rougher",
    "spatter": "severity 3 is much water, severity 4 a little mud",
    "saturate": "severities 1 and 2 wash out, 3 to 5 saturate",
}
"""Corruptions whose squared distance to the clean image need not grow with severity, and why."""

# fmt: off
CHANGE = {
    "gaussian_noise": ((-0.52, 9.92), (-0.63, 14.92), (-0.75, 19.82), (-0.75, 22.03), (-0.71, 24.51)),
    "shot_noise": ((-0.72, 8.06), (-0.78, 11.33), (-1.01, 17.7), (-1.16, 20.35), (-1.63, 24.67)),
    "impulse_noise": ((-0.15, 14.01), (-0.02, 20.55), (-0.37, 24.24), (-0.17, 31.87), (-0.54, 37.76)),
    "defocus_blur": ((-0.48, 1.87), (-0.48, 4.59), (-0.48, 6.77), (-0.39, 9.5), (-0.43, 11.58)),
    "glass_blur": ((-0.07, 17.19), (-0.96, 17.13), (-1.15, 15.55), (-1.06, 22.88), (-1.2, 21.13)),
    "motion_blur": ((-0.05, 8.52), (-0.13, 12.3), (0.14, 15.07), (-0.31, 15.2), (-0.1, 17.21)),
    "zoom_blur": ((-0.73, 10.78), (-0.82, 13.04), (-0.92, 15.26), (-1.02, 17.53), (-1.15, 19.59)),
    "snow": ((10.65, 8.4), (24.04, 13.9), (26.27, 17.95), (37.82, 22.3), (53.31, 26.54)),
    "frost": ((23.77, 14.21), (38.53, 20.81), (30.28, 26.22), (33.13, 27.21), (22.3, 35.53)),
    "fog": ((-3.58, 12.95), (-1.59, 26.01), (-7.83, 33.72), (-5.66, 40.39), (-5.75, 47.15)),
    "brightness": ((7.6, 4.43), (15.34, 9.17), (22.44, 13.92), (28.77, 18.6), (38.7, 27.24)),
    "contrast": ((-0.49, 11.34), (-0.47, 22.68), (-0.49, 27.22), (-0.51, 31.75), (-0.49, 38.56)),
    "elastic_transform": ((-0.01, 25.19), (0.17, 23.7), (-0.12, 19.62), (-0.36, 18.56), (-0.38, 15.48)),
    "pixelate": ((0.06, 5.12), (0.12, 6.52), (0.15, 7.57), (0.24, 9.46), (0.35, 11.07)),
    "jpeg_compression": ((-0.06, 12.5), (-0.08, 14.17), (-0.09, 14.8), (-0.04, 15.28), (-0.1, 15.91)),
    "speckle_noise": ((-0.81, 8.52), (-1.11, 13.99), (-1.3, 16.72), (-1.67, 21.88), (-2.18, 27.14)),
    "gaussian_blur": ((-0.48, 1.84), (-0.48, 6.72), (-0.49, 8.28), (-0.49, 9.46), (-0.49, 11.23)),
    "spatter": ((0.96, 7.56), (2.75, 12.65), (6.83, 17.99), (-3.81, 20.74), (-5.72, 25.53)),
    "saturate": ((37.18, 42.59), (47.89, 54.8), (-17.9, 20.86), (-30.98, 35.32), (-37.0, 42.98)),
}
# fmt: on
"""Mean and standard deviation of (corrupted - clean), severity 1 to 5, on `natural_images()`."""


def distances(name: str, images: Pixels = IMAGES) -> list[float]:
    """Mean squared distance to the clean images, by severity from 0."""
    return [float(np.mean((corrupt(images, name, severity).astype(float) - images) ** 2)) for severity in range(6)]


def test_the_benchmark_is_the_official_list_whatever_else_there_is():
    assert STANDARD == (
        "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
        "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
        "jpeg_compression",
    )  # fmt: skip
    assert set(PUBLISHED) - set(STANDARD) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


@pytest.mark.parametrize("name", CORRUPTIONS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_result_belongs_to_its_image_not_to_its_place(name, data):
    order = data.draw(st.lists(st.integers(0, len(IMAGES) - 1), min_size=1, max_size=6))
    severity = data.draw(st.integers(0, 5))
    whole = corrupt(IMAGES, name, severity, seed=3)
    np.testing.assert_array_equal(corrupt(IMAGES[order], name, severity, seed=3), whole[order])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_chunks_do_not_change_the_result(name, monkeypatch):
    whole = corrupt(IMAGES[:7], name, 4)
    monkeypatch.setattr(registry, "_CHUNK", 3)
    np.testing.assert_array_equal(corrupt(IMAGES[:7], name, 4), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_input_is_left_alone_and_severity_0_is_clean(name):
    before = IMAGES.copy()
    corrupt(IMAGES, name, 5)
    np.testing.assert_array_equal(IMAGES, before)
    np.testing.assert_array_equal(corrupt(IMAGES, name, 0), before)


@pytest.mark.parametrize(
    "name",
    [
        "gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "frost", "fog",
        "elastic_transform", "speckle_noise", "spatter",
    ],
)  # fmt: skip
def test_random_corruptions_follow_the_seed_and_differ_between_images(name):
    assert (corrupt(IMAGES, name, 3, seed=0) != corrupt(IMAGES, name, 3, seed=1)).any()
    flat = np.stack([np.full((32, 32, 3), level, dtype=np.uint8) for level in (100, 101)])
    if name not in {"glass_blur", "motion_blur", "elastic_transform"}:  # these leave a flat image flat
        first, second = corrupt(flat, name, 3).astype(int) - flat
        assert np.abs(first - second).max() > 2


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_distance_to_clean_grows_with_severity(name):
    found = distances(name)
    assert found[0] == 0 < min(found[1:])
    if name not in NOT_MONOTONE:
        assert all(milder < harsher for milder, harsher in pairwise(found)), found


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_change_has_its_reference_mean_and_spread(name):
    for severity, expected in enumerate(CHANGE[name], start=1):
        change = corrupt(IMAGES, name, severity).astype(float) - IMAGES
        assert (change.mean(), change.std()) == pytest.approx(expected, abs=0.1), severity


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_larger_and_oblong_images_work(name):
    large = natural_images(count=3, side=64)
    for images in (large, large[:, 8:56], large[:0]):
        corrupted = corrupt(images, name, 5)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == np.uint8
        assert not len(images) or (corrupted != images).any()


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_images_survive(name, level):
    corrupted = corrupt(np.full((1, 32, 32, 3), level, dtype=np.uint8), name, 1)
    assert np.abs(corrupted.astype(int) - level).mean() < 128


def test_noise_has_the_strength_of_its_constant():
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    grey[:, 0, 0, 0] = np.arange(40)  # otherwise equal images would share their noise

    def corrupted_grey(name: str, severity: int) -> Pixels:
        return corrupt(grey, name, severity)[:, 1:]

    assert corrupted_grey("gaussian_noise", 1).std() / 255 == pytest.approx(0.04, rel=0.02)
    assert corrupted_grey("speckle_noise", 1).std() / 128 == pytest.approx(0.06, rel=0.02)
    assert corrupted_grey("shot_noise", 1).std() / 255 == pytest.approx(math.sqrt(128 / 255 / 500), rel=0.02)
    struck = corrupted_grey("impulse_noise", 5)
    assert np.mean(struck == 0) == pytest.approx(0.035, rel=0.05)
    assert np.mean(struck == 255) == pytest.approx(0.035, rel=0.05)


def test_glass_displacement_is_the_walk_of_the_reference():
    generator = np.random.Generator(np.random.Philox(key=7))
    down, right = generator.integers(-1, 1, (2, 1, 32, 32))
    walked = IMAGES[0].copy()
    for row in range(31, 1, -1):
        for column in range(31, 1, -1):
            source = row + down[0, row, column], column + right[0, row, column]
            walked[row, column], walked[source] = walked[source], walked[row, column]
    np.testing.assert_array_equal(blur.pull_pixels(IMAGES[:1], down, right)[0], walked)


@pytest.mark.parametrize("degrees", [-45, -10, 0, 33, -90, -135])
def test_motion_blur_is_the_half_gaussian_of_imagemagick(degrees):
    radius, sigma, angle = 3, 1.5, math.radians(degrees)
    weights = [math.exp(-(tap**2) / (2 * sigma**2)) for tap in range(2 * radius + 1)]
    expected = np.zeros((32, 32, 3))
    for row, column in np.ndindex(32, 32):
        for tap, weight in enumerate(weights):
            source_row = row + math.ceil(tap * math.sin(angle) - 0.5)
            source_column = column + math.ceil(tap * math.cos(angle) - 0.5)
            pixel = IMAGES[0, min(max(source_row, 0), 31), min(max(source_column, 0), 31)]
            expected[row, column] += weight / sum(weights) * pixel
    found = blur.motion_blurred(IMAGES[:1], np.array([angle], dtype=np.float32), radius, sigma)[0]
    assert np.abs(found - expected).max() < 0.51


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.25, 1.75, 2.25])
def test_clipped_zoom_is_the_zoom_of_scipy(factor):
    kept = math.ceil(32 / factor)
    first = (32 - kept) // 2
    channel = unit(IMAGES[0, ..., 0])
    zoomed = ndimage.zoom(channel[first : first + kept, first : first + kept], factor, order=1)
    trim = (len(zoomed) - 32) // 2
    matrix = blur.clipped_zoom(32, factor)
    np.testing.assert_allclose(matrix @ channel @ matrix.T, zoomed[trim : trim + 32, trim : trim + 32], atol=1e-5)


def test_displacement_is_the_interpolation_of_scipy():
    generator = np.random.Generator(np.random.Philox(key=8))
    down, right = generator.uniform(-5, 5, (2, 1, 32, 32)).astype(np.float32)
    places = np.mgrid[0:32, 0:32] + np.stack([down[0], right[0]])
    channels = np.moveaxis(unit(IMAGES[0]), -1, 0)
    expected = [ndimage.map_coordinates(channel, places, order=1, mode="reflect") for channel in channels]
    found = digital.displaced(unit(IMAGES[:1]), down, right)[0]
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), expected, atol=1e-5)


@given(pixel=st.tuples(*[st.integers(0, 255)] * 3), severity=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_colours_change_as_in_hsv(pixel, severity):
    image = np.broadcast_to(np.array(pixel, dtype=np.uint8), (1, 32, 32, 3))
    hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in pixel))
    (added,) = CORRUPTIONS["brightness"].constants[severity - 1]
    factor, offset = CORRUPTIONS["saturate"].constants[severity - 1]
    brighter = colorsys.hsv_to_rgb(hue, saturation, min(value + added, 1))
    saturated = colorsys.hsv_to_rgb(hue, min(saturation * factor + offset, 1), value)
    for name, expected in (("brightness", brighter), ("saturate", saturated)):
        found = corrupt(image, name, severity)[0, 0, 0]
        assert np.abs(found - 255 * np.array(expected) + 0.5).max() <= 0.51


def test_truncation_survives_the_round_trip_of_every_level():
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_array_equal(levels(unit(every)), every)
    assert levels(np.array([-0.5, 0.5, 1.5], dtype=np.float32)).tolist() == [0, 127, 255]


def test_frost_textures_are_distinct_icy_and_detailed():
    textures = frost_textures().astype(float)
    assert textures.shape == (5, 200, 200, 3)
    assert all(80 < texture.mean() < 170 and texture.std() > 40 for texture in textures)
    assert (textures[..., 2] >= textures[..., 0]).all()
    assert min(np.abs(one - other).mean() for one, other in pairwise(textures)) > 20


@pytest.mark.parametrize(
    ("images", "name", "severity", "complaint"),
    [
        (
            IMAGES,
            "gausian_noise",
            1,
            "unknown corruption 'gausian_noise'; choose one of ",
        ),
        (IMAGES, "fog", 6, "severity of fog is 6; choose an integer from 0 \\(clean\\) to 5"),
        (IMAGES, "fog", -1, "severity of fog is -1"),
        (IMAGES, "fog", 2.0, "severity of fog is 2.0"),
        (IMAGES, "fog", True, "severity of fog is True"),
        (IMAGES.astype(np.float32), "fog", 1, "images to corrupt are float32; pass a uint8 array"),
        ([[0]], "fog", 1, "images to corrupt are list"),
        (IMAGES[0], "fog", 1, r"shape \[32, 32, 3\]; pass \[N, height, width, 3\]"),
        (IMAGES[..., :1], "fog", 1, r"shape \[24, 32, 32, 1\]"),
        (IMAGES[:, :8], "fog", 1, "with sides from 16 to 128 pixels"),
    ],
)
def test_bad_requests_are_one_clear_line(images, name, severity, complaint, cache_dir):
    for request in (
        lambda: corrupt(images, name, severity),
        lambda: corrupted_pool(images, name, severity, 0, cache_dir),
    ):
        with pytest.raises(FedadeError, match=complaint) as caught:
            request()
        assert "\n" not in str(caught.value)
    assert not list(cache_dir.iterdir())


def test_a_bad_seed_is_named():
    with pytest.raises(FedadeError, match="seed of fog is 'x'"):
        corrupt(IMAGES, "fog", 1, seed="x")


def test_missing_opencv_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(FedadeError, match=r"pip install 'fedade\[vision\]'"):
        _ = pixels.cv2.cvtColor
