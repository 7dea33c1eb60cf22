"""Operations on many clients at once: fused kernels where there are any, and what they compute in plain PyTorch."""

from fedade.kernels.dispatch import absolute_iterations, folded, fused_layers, normalised_pixels
from fedade.kernels.layer import Layer
from fedade.kernels.mapping import mapped
from fedade.kernels.reference import Affine

__all__ = [
    "Affine",
    "Layer",
    "absolute_iterations",
    "folded",
    "fused_layers",
    "mapped",
    "normalised_pixels",
]
