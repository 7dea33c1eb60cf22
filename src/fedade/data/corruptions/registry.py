"""The corruptions of CIFAR-C by name, with their constants for severity 1 to 5, and images corrupted by them: checked,
spread over threads, and kept on disk, so that the work is done once.

Transforms and constants are those of Hendrycks and Dietterich, "Benchmarking neural network robustness to common
corruptions and perturbations", 2019, in their version for CIFAR, far milder than the one for ImageNet.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedade.core.errors import FedadeError
from fedade.data.corruptions import blur, digital, weather
from fedade.data.corruptions.pixels import ByteImages, Draws
from fedade.data.dataset import kept_array

Constants = tuple[float, ...]
MAX_SEVERITY = 5
"""Severities run from 0, clean, to this."""


class Corruption(NamedTuple):
    """A transform `(images, draws, *constants) -> images` and its constants, mildest first."""

    transform: Callable[..., ByteImages]
    constants: tuple[Constants, Constants, Constants, Constants, Constants]


_SNOW = (
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)  # fmt: skip
_SPATTER = (
    (0.62, 0.1, 0.7, 0.7, 0.5, False), (0.65, 0.1, 0.8, 0.7, 0.5, False), (0.65, 0.3, 1, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True), (0.65, 0.1, 0.5, 0.68, 0.6, True),
)  # fmt: skip
CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(digital.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot_noise": Corruption(digital.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse_noise": Corruption(digital.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus_blur": Corruption(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(blur.glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": Corruption(blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": Corruption(blur.zoom_blur, ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,))),
    "snow": Corruption(weather.snow, _SNOW),
    "frost": Corruption(weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(digital.brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": Corruption(digital.contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic_transform": Corruption(
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": Corruption(digital.pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg_compression": Corruption(digital.jpeg_compression, ((80,), (65,), (58,), (50,), (40,))),
    "speckle_noise": Corruption(digital.speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
    "gaussian_blur": Corruption(blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1,))),
    "spatter": Corruption(weather.spatter, _SPATTER),
    "saturate": Corruption(digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
"""Every corruption by its name. A new one is a function and an entry here; it joins no benchmark by that."""

STANDARD = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
"""The 15 corruptions that benchmark scores average over, in the order in which clients are assigned them."""
PUBLISHED = tuple(sorted((*STANDARD, "speckle_noise", "gaussian_blur", "spatter", "saturate")))
"""The 19 corruptions whose images the authors of CIFAR-C published: the standard ones and 4 extra ones."""
SMALLEST_SIDE, LARGEST_SIDE = 16, 128
"""Image sides for which the constants, made for 32 pixels, still mean what they are called."""

# Small enough for the processor's cache, large enough that calls cost little.
_CHUNK = 128
ALGORITHM_VERSION = 1
"""Raised whenever a corruption's pixels change, so that older cached images are not used again."""


def corrupt(images: ByteImages, name: str, severity: int, seed: int = 0) -> ByteImages:
    """Images `[N, H, W, 3]` with the named corruption; severity 0 returns them unchanged.

    The result for an image is determined by its pixels, the corruption, the severity and the seed:
    its place in the array and the other images do not matter.

    >>> grey = np.full((1, 32, 32, 3), 100, dtype=np.uint8)
    >>> corrupt(grey, "brightness", severity=1)[0, 0, 0].tolist()
    [112, 112, 112]
    """
    check_request(images, name, severity, seed)
    if severity == 0:
        return images
    corruption = CORRUPTIONS[name]
    constants = corruption.constants[severity - 1]
    corrupted = np.empty(images.shape, dtype=np.uint8)

    def corrupt_chunk(first: int) -> None:
        chunk = np.ascontiguousarray(images[first : first + _CHUNK])
        draws = Draws(chunk, address=f"{name}/{severity}/{seed}")
        corrupted[first : first + _CHUNK] = corruption.transform(chunk, draws, *constants)

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        for _ in threads.map(corrupt_chunk, range(0, len(images), _CHUNK)):
            pass
    return corrupted


def check_request(images: ByteImages, name: str, severity: int, seed: int) -> None:
    """Raise a FedadeError, naming what is allowed, unless `corrupt` can do this."""
    if name not in CORRUPTIONS:
        raise FedadeError(f"unknown corruption {name!r}; choose one of {', '.join(CORRUPTIONS)}")
    if not _is_integer(severity) or not 0 <= severity <= MAX_SEVERITY:
        raise FedadeError(f"severity of {name} is {severity!r}; choose an integer from 0 (clean) to {MAX_SEVERITY}")
    if not _is_integer(seed):
        raise FedadeError(f"seed of {name} is {seed!r}; choose an integer")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        given = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise FedadeError(f"images to corrupt are {given}; pass a uint8 array with levels 0..255")
    sides_allowed = all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in images.shape[1:3])
    if images.ndim != 4 or images.shape[3] != 3 or not sides_allowed:
        raise FedadeError(
            f"images to corrupt have shape {list(images.shape)}; pass [N, height, width, 3] "
            f"with sides from {SMALLEST_SIDE} to {LARGEST_SIDE} pixels"
        )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def digest_of(images: ByteImages) -> str:
    """A name that two arrays of images share only if they are the same."""
    digest = hashlib.blake2b(f"{images.shape}/".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def corrupted_pool(
    images: ByteImages, name: str, severity: int, seed: int, cache_dir: Path | None, digest: str | None = None
) -> ByteImages:
    """What `corrupt` returns, as a read-only memory map of a file in `cache_dir`, if one is given. The file is named by
    a hash of all that determines it; who asks for many corruptions of the same images computes their `digest` once. It
    appears whole or not at all, and is made anew when it was truncated or is not the array it should be."""
    check_request(images, name, severity, seed)
    if cache_dir is None or severity == 0:
        return corrupt(images, name, severity, seed)
    identity = f"{ALGORITHM_VERSION}/{name}/{severity}/{seed}/{digest or digest_of(images)}"
    path = cache_dir / f"{name}-{severity}-{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}.npy"
    made = partial(corrupt, images, name, severity, seed)
    return kept_array(path, lambda there: there.dtype == np.uint8 and there.shape == images.shape, made)
