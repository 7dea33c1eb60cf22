"""Stored pixels to normalised images, in one pass."""

import importlib
import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor


def normalised_pixels(pixels: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """(pixels - mean) / deviation per channel of `[n, channels, height, width]`; mean and deviation are `[channels]`.

    On a GPU the images come out in channels-last memory and in the given dtype, as convolutions want them.
    """
    if pixels.is_cuda and pixels.dtype is torch.uint8 and importlib.util.find_spec("triton") is not None:
        found: Tensor = _lanes().normalised(pixels, mean, deviation, dtype)
        return found
    images = pixels if pixels.is_floating_point() else pixels.to(mean.dtype)
    return (images - mean[:, None, None]) / deviation[:, None, None]


@cache
def _lanes() -> Any:
    return importlib.import_module("fedade.kernels.pixel_lanes")
