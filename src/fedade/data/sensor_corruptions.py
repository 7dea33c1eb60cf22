"""Faults of a small grey sensor, for covariate shift on the default data: no dependency beyond SciPy. The colour
corruptions of CIFAR-C are in `fedade.data.corruptions`."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.data.corruptions.registry import MAX_SEVERITY

Images = NDArray[np.float64]
"""`[N, 1, height, width]` on a 0..1 scale."""


def _dead_pixels(images: Images, strength: float, generator: np.random.Generator) -> Images:
    dead = generator.random(images.shape) < 0.35 * strength
    return np.where(dead, generator.integers(0, 2, images.shape), images)


def _low_contrast(images: Images, strength: float, _: np.random.Generator) -> Images:
    middle = images.mean((-2, -1), keepdims=True)
    return np.asarray(middle + (images - middle) * (1 - 0.75 * strength))


def _vignette(images: Images, strength: float, _: np.random.Generator) -> Images:
    rows, columns = (np.linspace(-1, 1, size) for size in images.shape[-2:])
    distance = np.sqrt(rows[:, None] ** 2 + columns[None, :] ** 2) / np.sqrt(2)
    return np.asarray(images * (1 - strength * distance))


SENSOR_CORRUPTIONS: Mapping[str, Callable[[Images, float, np.random.Generator], Images]] = {
    "noise": lambda images, strength, generator: images + generator.normal(0, 0.16 * strength, images.shape),
    "dead_pixels": _dead_pixels,
    "blur": lambda images, strength, _: ndimage.gaussian_filter(images, (0, 0, 1.1 * strength, 1.1 * strength)),
    "low_contrast": _low_contrast,
    "bright": lambda images, strength, _: images + 0.4 * strength,
    "vignette": _vignette,
}
SENSOR_STANDARD = ("noise", "dead_pixels", "blur", "low_contrast", "bright", "vignette")
"""What clients meet unless others are named, in this order; one that is added joins by being named."""


def corrupt_sensor(pixels: NDArray[np.uint8], name: str, severity: int, seed: int = 0) -> NDArray[np.uint8]:
    """Grey images `[N, 1, height, width]` as a faulty sensor gives them; severity 0 is clean, 5 is worst."""
    if name not in SENSOR_CORRUPTIONS:
        raise FedadeError(f"unknown corruption {name!r}; for grey images: {', '.join(SENSOR_CORRUPTIONS)}")
    if severity not in range(MAX_SEVERITY + 1):
        raise FedadeError(f"severity {severity} of {name} does not exist; choose 0 (clean) to {MAX_SEVERITY}")
    if severity == 0:
        return pixels
    generator = Seeds(seed).generator(f"sensor-{name}", severity=severity)
    seen = SENSOR_CORRUPTIONS[name](pixels / 255, severity / MAX_SEVERITY, generator)
    return np.round(np.clip(seen, 0, 1) * 255).astype(np.uint8)
