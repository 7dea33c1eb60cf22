"""The corruptions of CIFAR-C by name, with their constants for severity 1 to 5.

Transforms and constants are those of Hendrycks and Dietterich, "Benchmarking neural network robustness
to common corruptions and perturbations", 2019, in their version for CIFAR, far milder than the one for
ImageNet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedade.data.corruptions import blur, digital, noise, weather
from fedade.data.corruptions.pixels import ByteImages

Constants = tuple[float, ...]

MAX_SEVERITY = 5
"""Severities run from 0, clean, to this."""


@dataclass(frozen=True)
class Corruption:
    """A transform `(images, draws, *constants) -> images` and its constants, mildest first."""

    transform: Callable[..., ByteImages]
    constants: tuple[Constants, Constants, Constants, Constants, Constants]


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(noise.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot_noise": Corruption(noise.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse_noise": Corruption(noise.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus_blur": Corruption(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(blur.glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": Corruption(blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": Corruption(blur.zoom_blur, ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,))),
    "snow": Corruption(
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
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
    "speckle_noise": Corruption(noise.speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
    "gaussian_blur": Corruption(blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1,))),
    "spatter": Corruption(
        weather.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ),
    ),
    "saturate": Corruption(digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
"""Every corruption by its name. A new one is a function and an entry here; it joins no benchmark by that."""

# fmt: off
STANDARD = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)
"""The 15 corruptions that benchmark scores average over, in the order in which clients are assigned them."""
# fmt: on

PUBLISHED = tuple(sorted((*STANDARD, "speckle_noise", "gaussian_blur", "spatter", "saturate")))
"""The 19 corruptions whose images the authors of CIFAR-C published: the standard ones and 4 extra ones."""
