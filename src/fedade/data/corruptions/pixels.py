"""Images as 8-bit levels and as floats in [0, 1], and the blur that several corruptions share.

Axes: N images, H rows, W columns, C channels (red, green, blue).
"""

from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fedade.core.optional import OptionalModule

Scalar = TypeVar("Scalar", bound=np.generic)

ByteImages = NDArray[np.uint8]
"""Images as stored: `[N, H, W, 3]`, levels 0..255."""

Unit = NDArray[np.float32]
"""Images or layers as computed with: levels divided by 255."""

# The reference truncates. The guard keeps a float that misses its integer by rounding from losing a
# level, which would differ between processors; float32 rounding of a level is below 1e-4.
_TRUNCATION_GUARD = np.float32(1e-3)


def unit(images: ByteImages) -> Unit:
    """Levels 0..255 as floats in [0, 1]."""
    return images.astype(np.float32) / np.float32(255)


def levels(images: Unit) -> ByteImages:
    """Floats, clipped to [0, 1], as levels 0..255: truncated, as CIFAR-10-C was."""
    return (np.clip(images, 0, 1) * np.float32(255) + _TRUNCATION_GUARD).astype(np.uint8)


def gathered(images: NDArray[Scalar], sources: NDArray[np.int64]) -> NDArray[Scalar]:
    """Images whose pixels are read at `sources`, `[N, H, W]`: row * W + column in the same image."""
    count, height, width, channels = images.shape
    flat = images.reshape(count * height * width, channels)
    pixels: NDArray[Scalar] = flat[sources + np.arange(count)[:, None, None] * (height * width)]
    return pixels


def gaussian(
    layers: Unit, sigma: float, mode: Literal["nearest", "reflect"] = "nearest", truncate: float = 4.0
) -> Unit:
    """Layers `[N, H, W]` or `[N, H, W, C]` blurred along rows and columns only."""
    sigmas = (0.0, sigma, sigma) + (0.0,) * (layers.ndim - 3)
    blurred: Unit = ndimage.gaussian_filter(layers, sigmas, mode=mode, truncate=truncate)
    return blurred


cv2: Any = OptionalModule("cv2", "vision")

__all__ = ["cv2"]
