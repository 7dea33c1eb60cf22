"""Blurs: gaussian, glass, defocus, motion and zoom."""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from fedade.data.corruptions.pixels import ByteImages, Draws, Unit, cv2, gathered, gaussian, levels, unit


def gaussian_blur(images: ByteImages, _draws: Draws, sigma: float) -> ByteImages:
    """The plain low-pass filter."""
    return levels(gaussian(unit(images), sigma))


def glass_blur(images: ByteImages, draws: Draws, sigma: float, passes: int) -> ByteImages:
    """Frosted glass: a blur, pixels displaced by at most one place per pass, a blur."""
    displaced = levels(gaussian(unit(images), sigma))
    for _ in range(passes):
        up, left = np.moveaxis(draws.uniform((2, *images.shape[1:3])) < 0.5, 1, 0).astype(np.int64)
        displaced = pull_pixels(displaced, -up, -left)
    return levels(gaussian(unit(displaced), sigma))


def pull_pixels(images: ByteImages, down: NDArray[np.int64], right: NDArray[np.int64]) -> ByteImages:
    """Each pixel takes the value found `down`, `right` of it; both are `[N, H, W]` and -1 or 0.

    The reference walks from the last pixel to the first and means to swap two pixels, but its swap assigns through
    NumPy views, so the value is copied one way. As sources lie above or to the left, where the walk has not been yet,
    the whole walk is this one gather. It leaves out the first two rows and columns.
    """
    height, width = images.shape[1:3]
    moves = np.zeros((height, width), dtype=np.int64)
    moves[2:, 2:] = 1
    places = np.arange(height * width).reshape(height, width)
    return gathered(images, places + moves * (down * width + right))


def defocus_blur(images: ByteImages, _draws: Draws, radius: float, alias_blur: float) -> ByteImages:
    """A lens out of focus: every point becomes a disk."""
    kernel = disk(radius, alias_blur)
    return levels(np.stack([cv2.filter2D(image, -1, kernel) for image in unit(images)]))


@cache
def disk(radius: float, alias_blur: float) -> Unit:
    """A uniform disk of mass 1 whose rim is softened by a 3 x 3 gaussian."""
    # A margin of 2 is all zero around the softened disk, so the mirrored border adds nothing.
    reach = math.ceil(radius) + 2
    rows, columns = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    aliased = (rows**2 + columns**2 <= radius**2).astype(np.float32)
    return np.asarray(cv2.GaussianBlur(aliased / aliased.sum(), (3, 3), sigmaX=alias_blur), dtype=np.float32)


def motion_blur(images: ByteImages, draws: Draws, radius: int, sigma: float) -> ByteImages:
    """A camera that moves along a line, within 45 degrees of the horizontal."""
    return motion_blurred(images, np.deg2rad(draws.uniform((), -45, 45)), radius, sigma)


def motion_blurred(layers: ByteImages, angles: Unit, radius: int, sigma: float) -> ByteImages:
    """Layers `[N, H, W, C]`, each blurred along its own angle (radians), as ImageMagick does it. Its kernel is one half
    of a gaussian, 2 radius + 1 taps long, laid on the nearest pixels of the line; beyond the border the edge repeats;
    levels are rounded."""
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    direction = np.stack([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float64)
    offsets = np.ceil(direction[:, None, :] * taps[:, None] - 0.5).astype(np.int64)

    height, width = layers.shape[1:3]
    reach = 2 * radius
    padded = np.pad(layers, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge").astype(np.float32)
    blurred = np.zeros(layers.shape, dtype=np.float32)
    # Angles that round to the same pixels are blurred together.
    paths, path_of = np.unique(offsets.reshape(len(layers), -1), axis=0, return_inverse=True)
    for number, path in enumerate(paths):
        members = np.flatnonzero(path_of == number)
        window, total = padded[members], blurred[members]
        for weight, (down, right) in zip(weights, path.reshape(-1, 2) + reach, strict=True):
            total += np.float32(weight) * window[:, down : down + height, right : right + width]
        blurred[members] = total
    return np.rint(blurred).astype(np.uint8)


def zoom_blur(images: ByteImages, _draws: Draws, largest_zoom: float) -> ByteImages:
    """A camera that moves towards its subject: the mean of ever larger zooms and the image."""
    count, height, width, channels = images.shape
    columns = unit(images).transpose(1, 2, 0, 3).reshape(height * width, count * channels)
    mean_zoom: Unit = _mean_zoom(height, width, largest_zoom) @ columns
    return levels(mean_zoom.reshape(height, width, count, channels).transpose(2, 0, 1, 3))


@cache
def _mean_zoom(height: int, width: int, largest_zoom: float) -> sparse.csr_array:
    """Zoom blur as a linear map of the H * W pixels of one channel."""
    # Whether the end itself is one of the factors depends on rounding; `arange` decides as it did for
    # the reference.
    factors = np.arange(1, largest_zoom, 0.01)
    zooms = [
        sparse.kron(sparse.csr_array(clipped_zoom(height, factor)), sparse.csr_array(clipped_zoom(width, factor)))
        for factor in factors
    ]
    total = sum(zooms, start=sparse.eye_array(height * width))
    return sparse.csr_array(total / (len(factors) + 1), dtype=np.float32)


def clipped_zoom(side: int, factor: float) -> Unit:
    """The linear map `[side, side]` that zooms one axis into its middle, by linear interpolation."""
    kept = math.ceil(side / factor)
    first = (side - kept) // 2
    zoomed = ndimage.zoom(np.eye(side)[first : first + kept], (factor, 1), order=1)
    trim = (len(zoomed) - side) // 2
    return np.asarray(zoomed[trim : trim + side], dtype=np.float32)
