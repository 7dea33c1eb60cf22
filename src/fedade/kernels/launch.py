"""Convolutions of many lanes and their gradients, on channels-last images `[lanes, samples, height, width, channels]`.

Weights are packed, `[lanes, outputs, kernel, kernel, channels]`, in the dtype of the images. A tensor with one lane is
shared by all lanes.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedade.kernels.folding_lanes import PartialGradients
from fedade.kernels.geometry import Image, Window, convolved, forward_window, input_gradient_window
from fedade.kernels.grids import launch, room
from fedade.kernels.products import window_outer_product, window_product
from fedade.kernels.reductions import sums_of_pieces
from fedade.kernels.row_products import OUTPUTS, Walk, launch_rows, walk
from fedade.kernels.tilings import (
    SplitTiling,
    Tiling,
    input_gradient_tiling,
    power_of_two,
    product_tiling,
    weight_gradient_tiling,
)

FORWARD_PRECISION = {"float32": "tf32x3", "tf32": "tf32"}
GRADIENT_PRECISION = {"float32": "bf16x6", "tf32": "bf16x3"}
"""How tensor cores multiply float32: three products of tf32 and six of bf16 are both as good as float32 itself.

In gradients, an operand has to be turned on the way to the tensor cores. That can be done with bf16 only, so they are
made of products of bf16; three of them are better than one of tf32.
"""
MOST_GROUPS_OF_GELU = 64
"""In a block: with more, what a gelu keeps in registers beside the sums does not fit."""
FEWEST_STEPS = 4
"""Of a split of a 1x1 convolution's weight gradient, which as a whole needs no summing."""
ROWS_PER_PIECE, ROW_BLOCK = 1024, 4096
"""Rows that one program sums, and numbers that it reads at a time."""


@dataclass(frozen=True)
class Epilogue:
    """What happens to a product before it is stored: bias, residual, then relu or gate (pass where it is positive).

    A residual with a step has but every step-th row and column, and is zero in between. With `gelu` it follows instead
    of a relu, `before` takes what it is given, and a gate is that.
    """

    bias: Tensor | None = None
    residual: Tensor | None = None
    residual_step: int = 1
    gate: Tensor | None = None
    rectified: bool = False
    gelu: bool = False
    before: Tensor | None = None
    moments: Tensor | None = None
    """Takes what pieces of images add to mean and mean square of a sample's channels: `[2, lanes, samples, pieces,
    channels]`."""

    @property
    def plain(self) -> bool:
        """Neither gelu nor gaps."""
        return not self.gelu and self.residual_step == 1


def convolve(
    images: Tensor,
    weights: Tensor,
    stride: int,
    epilogue: Epilogue,
    precision: str,
    tiling: Tiling | Walk | None = None,
) -> Tensor:
    """Convolution of images with padding `kernel // 2`."""
    channels, kernel = weights.shape[1:3]
    source = image_of(images)
    tiling = tiling or forward_tiling(source, channels, kernel, stride, epilogue, images.element_size())
    window = forward_window(source, channels, kernel, stride, tiling.outputs)
    output = _empty_output(images, weights, window)
    strides = (kernel * kernel * source.channels, 1, source.channels)
    _launch_product(images, weights, strides, output, window, epilogue, FORWARD_PRECISION[precision], tiling)
    return output


def forward_tiling(
    source: Image, channels: int, kernel: int, stride: int, epilogue: Epilogue, bytes_each: int
) -> Tiling | Walk:
    walking = walk(forward_window(source, channels, kernel, stride, OUTPUTS), bytes_each) if epilogue.plain else None
    tiling = product_tiling(source.channels, channels, stride, bytes_each, kernel)
    if epilogue.gelu:
        tiling = replace(tiling, groups=min(MOST_GROUPS_OF_GELU, tiling.groups))
    return walking or tiling


def piece_of(window: Window, tiling: Tiling | Walk) -> int:
    """How many groups of a block are of one image, however it lies in the block."""
    if isinstance(tiling, Walk):
        return math.gcd(window.group_columns, tiling.sequences)
    return math.gcd(window.groups, tiling.groups)


def room_of_output(images: Tensor, weights: Tensor, stride: int) -> Tensor:
    """Memory for one more output of a convolution."""
    image = convolved(image_of(images), weights.shape[1], stride)
    return room(images, (max(len(images), len(weights)), images.shape[1], image.height, image.width, image.channels))


def input_gradient(
    gradient: Tensor,
    weights: Tensor,
    image: Image,
    stride: int,
    epilogue: Epilogue,
    precision: str,
    tiling: Tiling | Walk | None = None,
) -> Tensor:
    """Gradient with respect to the images of a convolution."""
    channels, kernel = weights.shape[1:3]
    if tiling is None and epilogue.plain and stride == 1:
        tiling = walk(input_gradient_window(image, channels, kernel, 1, OUTPUTS), gradient.element_size())
    tiling = tiling or input_gradient_tiling(channels, image.channels, stride, gradient.element_size(), kernel)
    window = input_gradient_window(image, channels, kernel, stride, tiling.outputs)
    output = _empty_output(gradient, weights, window)
    strides = (1, kernel * kernel * image.channels, image.channels)
    _launch_product(gradient, weights, strides, output, window, epilogue, GRADIENT_PRECISION[precision], tiling)
    return output


def weight_gradient(
    images: Tensor,
    gradient: Tensor,
    kernel: int,
    stride: int,
    precision: str,
    tiling: SplitTiling | None = None,
) -> PartialGradients:
    """Gradients with respect to packed weights and bias in float32: sums over splits of the samples."""
    lanes, samples = gradient.shape[:2]
    source, channels = image_of(images), gradient.shape[-1]
    tiling = tiling or weight_gradient_tiling(source.channels, channels, stride, images.element_size())
    block = tiling.block
    rows_together = 3 if tiling.rows_together and kernel == 3 else 1
    window = forward_window(source, channels, kernel, stride, block.outputs)
    groups = samples * window.groups
    tiles = _blocks(window.breadth, block.breadth) * _blocks(window.stretch, block.depth) * window.rows // rows_together
    steps = _blocks(groups, block.groups)
    steps_per_split = _blocks(steps, max(1, tiling.programs // (tiles * lanes)))
    steps_per_split = max(FEWEST_STEPS, steps_per_split) if window.columns == 1 else steps_per_split
    splits = _blocks(steps, steps_per_split)
    partial_size = window.rows * window.breadth * window.stretch + window.breadth
    partial = room(images, (lanes, splits, partial_size), dtype=torch.float32)
    launch(window_outer_product, tiles, splits, lanes)(
        images,
        gradient,
        partial,
        groups,
        steps_per_split * block.groups,
        splits,
        _lane_stride(images, lanes),
        **_shape_of(window),
        ROWS_TOGETHER=rows_together,
        COLUMN_STRIDE=stride,
        WITH_SUMS=tiling.with_sums,
        PRECISION=GRADIENT_PRECISION[precision],
        **_blocks_of(block),
    )
    weights = window.rows * window.breadth * window.stretch
    biases = partial[:, :, weights:] if tiling.with_sums else _sums_per_channel(gradient)
    return PartialGradients(partial, biases, window.outputs, window.columns, stride, source.channels)


def _sums_per_channel(images: Tensor) -> Tensor:
    """`[lanes, pieces, channels]` in float32, of so many rows each."""
    lanes, channels = len(images), images.shape[-1]
    rows = images[0].numel() // channels
    sums = room(images, (lanes, _blocks(rows, ROWS_PER_PIECE), channels), dtype=torch.float32)
    block = power_of_two(channels)
    launch(sums_of_pieces, sums.shape[1], lanes)(
        images,
        sums,
        rows,
        ROWS_PER_PIECE,
        sums.shape[1],
        CHANNELS=channels,
        BLOCK_ROWS=max(1, ROW_BLOCK // block),
        BLOCK_CHANNELS=block,
    )
    return sums


def image_of(images: Tensor) -> Image:
    """Height, width and channels of a batch of images."""
    return Image(*images.shape[-3:])


def _launch_product(
    source: Tensor,
    weights: Tensor,
    weight_strides: tuple[int, int, int],
    output: Tensor,
    window: Window,
    epilogue: Epilogue,
    precision: str,
    tiling: Tiling | Walk,
) -> None:
    lanes, samples = output.shape[:2]
    given = (_every_lane(epilogue.residual, lanes), _every_lane(epilogue.gate, lanes))
    lane_steps = [0 if one is None else _lane_stride(one, lanes) for one in (source, weights, epilogue.bias)]
    taps = {
        "ROW_TAP": window.row_tap[0],
        "ROW_TAP_STEP": window.row_tap[2],
        "COLUMN_TAP": window.column_tap[0],
        "COLUMN_TAP_STEP": window.column_tap[1],
        "COLUMN_TAP_OUTPUT": window.column_tap[2],
        "OUTPUT_CHANNEL_STRIDE": weight_strides[0],
        "CHANNEL_STRIDE": weight_strides[1],
        "TAP_STRIDE": weight_strides[2],
        "RECTIFIED": epilogue.rectified,
    }
    moments = epilogue.moments
    steps = [*lane_steps, 0 if moments is None else moments.stride(0)]
    taps["PIECE"] = 1 if moments is None else piece_of(window, tiling)
    if isinstance(tiling, Walk):
        launch_rows(tiling, window, output, moments, (source, weights, epilogue.bias, *given), steps, **taps)
        return
    groups = samples * window.groups
    tiles = _blocks(groups, tiling.groups) * window.phases * _blocks(window.breadth, tiling.breadth)
    launch(window_product, tiles, lanes)(
        *(source, weights, epilogue.bias, *given, epilogue.before, output, moments, groups, tiles, *steps),
        **_shape_of(window),
        **taps,
        KERNEL=window.kernel,
        PHASES=window.phases,
        GROUP_ROWS=window.group_rows,
        RESIDUAL_STEP=epilogue.residual_step,
        GELU=epilogue.gelu,
        PRECISION=precision,
        **_blocks_of(tiling),
    )


_WINDOW = (
    "outputs", "rows", "columns", "group_columns", "row_step", "row_offset", "column_step", "column_offset",
)  # fmt: skip


def _shape_of(window: Window) -> dict[str, int]:
    """A window's numbers, as the kernels call them."""
    images = (("", window.source), ("OUTPUT_", window.output))
    sizes = {f"{of}{name.upper()}": size for of, image in images for name, size in vars(image).items()}
    return sizes | {name.upper(): getattr(window, name) for name in _WINDOW}


def _blocks_of(tiling: Tiling) -> dict[str, Any]:
    return {
        "BLOCK_GROUPS": tiling.groups,
        "BLOCK_BREADTH": tiling.breadth,
        "BLOCK_DEPTH": tiling.depth,
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
    }


def _empty_output(source: Tensor, weights: Tensor, window: Window) -> Tensor:
    image = window.output
    lanes = max(len(source), len(weights))
    return room(source, (lanes, source.shape[1], image.height, image.width, image.channels))


def _lane_stride(tensor: Tensor, lanes: int) -> int:
    """Distance between two lanes; 0 where all share one."""
    if len(tensor) != lanes:
        return 0
    return tensor[0].numel() if lanes == 1 else tensor.stride(0)


def _every_lane(tensor: Tensor | None, lanes: int) -> Tensor | None:
    return tensor if tensor is None else tensor.expand(lanes, *tensor.shape[1:]).contiguous()


def _blocks(number: int, block: int) -> int:
    return -(-number // block)
