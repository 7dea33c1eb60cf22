"""Convolutions that leave the moments of what they store: each block of a product sums it by piece of an image."""

import torch
from torch import Tensor

from fedade.kernels.geometry import Image, forward_window
from fedade.kernels.grids import launch, room
from fedade.kernels.launch import Epilogue, convolve, forward_tiling, image_of, piece_of
from fedade.kernels.reductions import sums_of_rows
from fedade.kernels.row_products import ROWS, Walk, strips_of
from fedade.kernels.tilings import power_of_two

LEAST_PIECE = 16
"""Pixels whose moments a product leaves as one sum at least: otherwise reading its output again is no more."""
SUMS_AT_ONCE, MOST_ROWS_AT_ONCE = 256, 16
"""Sums of pieces that a program makes, and numbers of each that it reads at a time."""


def measured_convolution(
    images: Tensor, weights: Tensor, stride: int, bias: Tensor | None, precision: str
) -> tuple[Tensor, Tensor]:
    """A convolution of which the product itself `leaves_moments`: its output, and mean and mean square of every
    sample's channels, `[2, lanes, samples, channels]` in float32."""
    source, (channels, kernel) = image_of(images), weights.shape[1:3]
    tiling = forward_tiling(source, channels, kernel, stride, Epilogue(), images.element_size())
    window = forward_window(source, channels, kernel, stride, tiling.outputs)
    lanes, samples = max(len(images), len(weights)), images.shape[1]
    pieces = window.groups // piece_of(window, tiling)
    if isinstance(tiling, Walk):
        strips, _ = strips_of(tiling, lanes, samples, window.output)
        pieces = strips * window.group_columns // piece_of(window, tiling)
    rows = pieces * tiling.outputs
    moments = room(images, (2, lanes, samples, rows, channels), dtype=torch.float32)
    output = convolve(images, weights, stride, Epilogue(bias, moments=moments), precision, tiling)
    return output, moments.squeeze(-2) if rows == 1 else _sums_of_rows(moments)


def leaves_moments(source: Image, channels: int, kernel: int, stride: int, bytes_each: int) -> bool:
    """Whether the images that a convolution gives are made of pieces so large that their sums are few."""
    tiling = forward_tiling(source, channels, kernel, stride, Epilogue(), bytes_each)
    window = forward_window(source, channels, kernel, stride, tiling.outputs)
    rows = ROWS if isinstance(tiling, Walk) else 1
    return rows * piece_of(window, tiling) >= LEAST_PIECE


def _sums_of_rows(values: Tensor) -> Tensor:
    """`[..., channels]` of `[..., rows, channels]`."""
    *leading, rows, channels = values.shape
    sums = room(values, (*leading, channels))
    at_once = min(MOST_ROWS_AT_ONCE, power_of_two(rows, 1))
    launch(sums_of_rows, -(-sums.numel() // SUMS_AT_ONCE))(
        values, sums, sums.numel(), ROWS=rows, CHANNELS=channels, BLOCK=SUMS_AT_ONCE, AT_ONCE=at_once
    )
    return sums
