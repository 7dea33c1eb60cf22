"""Random numbers that belong to an image, not to its place in an array."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedade.data.corruptions.pixels import ByteImages, Unit

Shape = tuple[int, ...]


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
        return self._stacked(shape, lambda generator: generator.standard_normal(shape, dtype=np.float32))

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Unit:
        unscaled = self._stacked(shape, lambda generator: generator.random(shape, dtype=np.float32))
        return np.float32(low) + np.float32(high - low) * unscaled

    def integers(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Uniform among 0 .. bound - 1 for each of the bounds, `[N, *bounds.shape]`."""
        return np.stack([generator.integers(bounds) for generator in self._generators])

    def poisson(self, means: NDArray[np.float64]) -> NDArray[np.int64]:
        """Poisson counts with the given means `[N, ...]`."""
        return np.stack([generator.poisson(mean) for generator, mean in zip(self._generators, means, strict=True)])

    def _stacked(self, shape: Shape, draw: Callable[[np.random.Generator], Unit]) -> Unit:
        drawn = np.empty((len(self.images), *shape), dtype=np.float32)
        for row, generator in enumerate(self._generators):
            drawn[row] = draw(generator)
        return drawn


def _generator(image: ByteImages, address: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{address}/{image.shape}/".encode(), digest_size=16)
    digest.update(image.tobytes())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))
