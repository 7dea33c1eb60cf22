"""Images as 8-bit levels and as floats in [0, 1], the blur that several corruptions share, and random numbers that
belong to an image, not to its place in an array. Axes: N images, H rows, W columns, C channels (red, green, blue)."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fedade.core.importing import OptionalModule

cv2: Any = OptionalModule("cv2", "vision")
Scalar = TypeVar("Scalar", bound=np.generic)
ByteImages = NDArray[np.uint8]
"""Images as stored: `[N, H, W, 3]`, levels 0..255."""
Unit = NDArray[np.float32]
"""Images or layers as computed with: levels divided by 255."""

# The reference truncates. The guard keeps a float that misses its integer by rounding from losing a
# level, which would differ between processors; float32 rounding of a level is below 1e-4.
_TRUNCATION_GUARD = np.float32(1e-3)
Shape = tuple[int, ...]


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


@dataclass(frozen=True)
class Draws:
    """Independent draws for each of N images, addressed by (image bytes, address).

    One counter-based generator per image, keyed by a hash, so neighbours, order and chunking cannot
    change what an image receives. Every draw has the image as its first axis.
    """

    images: ByteImages
    address: str

    @cached_property
    def _generators(self) -> tuple[np.random.Generator, ...]:
        return tuple(_generator(image, self.address) for image in self.images)

    def normal(self, shape: Shape) -> Unit:
        return np.stack([generator.standard_normal(shape, dtype=np.float32) for generator in self._generators])

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Unit:
        unscaled = np.stack([generator.random(shape, dtype=np.float32) for generator in self._generators])
        return np.float32(low) + np.float32(high - low) * unscaled

    def integers(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Uniform among 0 .. bound - 1 for each of the bounds, `[N, *bounds.shape]`."""
        return np.stack([generator.integers(bounds) for generator in self._generators])

    def poisson(self, means: NDArray[np.float64]) -> NDArray[np.int64]:
        """Poisson counts with the given means `[N, ...]`."""
        return np.stack([generator.poisson(mean) for generator, mean in zip(self._generators, means, strict=True)])


def _generator(image: ByteImages, address: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{address}/{image.shape}/".encode(), digest_size=16)
    digest.update(image.tobytes())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))
