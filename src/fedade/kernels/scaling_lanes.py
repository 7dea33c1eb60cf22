"""Moments of images, and images normalised per channel, as operations that `vmap` turns into lanes of one kernel.

Both read an image once. Neither has a gradient: where one is needed, `fedade.kernels` takes plain PyTorch.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, as_lanes, dense_lanes, lane_strides
from fedade.kernels.reference import Affine
from fedade.kernels.tilings import power_of_two

TILE = 2048
"""Numbers that a program reads at a time."""


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]` in float32."""
    result: Tensor = _Moments.apply(images)
    return result


def normalised(images: Tensor, affine: Affine, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(affine(images) + residual) of one client, the residual and the relu if asked for."""
    added = None if residual is None else _last(residual)[None]
    *of_channels, eps = affine
    result: Tensor = _Scaled.apply(eps, relu, _last(images)[None], *(value[None] for value in of_channels), added)
    return result.squeeze(0).permute(0, 3, 1, 2)


def _last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1)


class _Moments(Function):
    @staticmethod
    def forward(images: Tensor) -> Tensor:
        """Run the kernel."""
        pixels = _last(images).contiguous()
        samples, height, width, channels = pixels.shape
        result = room(images, (2, samples, channels), torch.float32)
        breadth = min(128, power_of_two(channels))
        tiles = triton.cdiv(channels, breadth)
        launch(_moments, tiles, samples)(
            pixels, result, samples, tiles, height * width, channels, breadth, max(1, TILE // breadth)
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, images: Tensor) -> tuple[Tensor, int]:
        """Images of all clients are one batch."""
        joined = images.movedim(in_dims[0] or 0, 0).flatten(0, 1)
        return channel_moments(joined).unflatten(1, (info.batch_size, -1)), 1


class _Scaled(Function):
    @staticmethod
    def forward(eps: float, relu: bool, images: Tensor, *others: Any) -> Tensor:
        """Run the kernel on `[lanes, samples, height, width, channels]`; what channels have is `[lanes, channels]`."""
        *of_channels, residual = others
        lanes, channels = max(len(images), *(len(value) for value in of_channels)), images.shape[-1]
        shape = (lanes, *images.shape[1:])
        pixels = images.expand(shape).contiguous()
        added = None if residual is None else residual.expand(shape).to(images.dtype).contiguous()
        own = [dense_lanes(value.float()) for value in of_channels]
        result = room(pixels, pixels.shape)
        rows, breadth = pixels[0].numel() // channels, min(256, power_of_two(channels))
        at_once, tiles = max(1, TILE // breadth), triton.cdiv(channels, breadth)
        blocks = triton.cdiv(rows, at_once)
        launch(_scale, tiles, blocks, lanes)(
            *(pixels, *own, added, result, eps, rows, tiles, blocks),
            *(*lane_strides(own), channels, relu, breadth, at_once),
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, relu: bool, *tensors: Tensor | None) -> tuple[Tensor, int]:
        """Clients are lanes."""
        result: Tensor = _Scaled.apply(eps, relu, *as_lanes(info.batch_size, in_dims[2:], tensors))
        return result.reshape(info.batch_size, -1, *result.shape[1:]), 0


@triton.jit(do_not_specialize=["samples", "tiles"])
def _moments(
    images, result, samples, tiles,
    PLANE: tl.constexpr, CHANNELS: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    known = channel < CHANNELS
    sums = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    squares = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    for first in range(0, PLANE, ROWS):
        pixel = first + tl.arange(0, ROWS)
        inside = (pixel < PLANE)[:, None] & known[None, :]
        places = (sample * PLANE + pixel)[:, None] * CHANNELS + channel[None, :]
        value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
        sums += value
        squares += value * value
    place = sample * CHANNELS + channel
    tl.store(result + place, tl.sum(sums, axis=0) / PLANE, mask=known)
    tl.store(result + samples.to(tl.int64) * CHANNELS + place, tl.sum(squares, axis=0) / PLANE, mask=known)


@triton.jit(do_not_specialize=["rows", "tiles", "blocks"])
def _scale(
    images, scale, shift, mean, variance, residual, result, eps, rows, tiles, blocks,
    scale_lane, shift_lane, mean_lane, variance_lane,
    CHANNELS: tl.constexpr, RECTIFIED: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """A program sees to some rows of one client's pixels: what their channels have is read once for all of them."""
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    row = (tl.program_id(0) // tiles % blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = (tl.program_id(0) // tiles // blocks).to(tl.int64)
    known = channel < CHANNELS
    spread = tl.load(variance + lane * variance_lane + channel, mask=known, other=1.0)
    factor = tl.load(scale + lane * scale_lane + channel, mask=known, other=0.0) * tl.rsqrt(spread + eps)
    summand = tl.load(shift + lane * shift_lane + channel, mask=known, other=0.0)
    summand -= tl.load(mean + lane * mean_lane + channel, mask=known, other=0.0) * factor
    places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
    value = value * factor[None, :] + summand[None, :]
    if residual is not None:
        value += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    if RECTIFIED:
        value = tl.maximum(value, 0.0)
    tl.store(result + places, value.to(result.dtype.element_ty), mask=inside)
