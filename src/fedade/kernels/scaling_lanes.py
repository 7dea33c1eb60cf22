"""Moments of images, and images scaled per channel, as operations that `vmap` turns into lanes of one kernel.

Both read an image once. Neither has a gradient: where one is needed, `fedade.kernels` takes plain PyTorch.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, as_lanes
from fedade.kernels.tilings import power_of_two

TILE = 2048
"""Numbers that a program reads at a time."""


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]` in float32."""
    result: Tensor = _Moments.apply(images)
    return result


def scaled(images: Tensor, scale: Tensor, shift: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(images scale + shift + residual) of one client, the residual and the relu if asked for."""
    added = None if residual is None else _last(residual)[None]
    result: Tensor = _Scaled.apply(relu, _last(images)[None], scale[None], shift[None], added)
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
    def forward(relu: bool, images: Tensor, scale: Tensor, shift: Tensor, residual: Tensor | None) -> Tensor:
        """Run the kernel on `[lanes, samples, height, width, channels]`; scale and shift are `[lanes, channels]`."""
        lanes, channels = max(len(images), len(scale)), images.shape[-1]
        shape = (lanes, *images.shape[1:])
        pixels = images.expand(shape).contiguous()
        added = None if residual is None else residual.expand(shape).to(images.dtype).contiguous()
        factor, summand = (value.float().expand(lanes, channels).contiguous() for value in (scale, shift))
        result = room(pixels, pixels.shape)
        numbers = pixels[0].numel()
        blocks = triton.cdiv(numbers, TILE)
        launch(_scale, blocks, lanes)(pixels, factor, summand, added, result, numbers, blocks, channels, relu, TILE)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, relu: bool, *tensors: Tensor | None) -> tuple[Tensor, int]:
        """Clients are lanes."""
        given = [tensor for tensor in tensors if tensor is not None]
        lanes: list[Tensor | None] = [*as_lanes(info.batch_size, in_dims[1 : 1 + len(given)], given)]
        result: Tensor = _Scaled.apply(relu, *lanes, *tensors[len(given) :])
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


@triton.jit(do_not_specialize=["numbers", "blocks"])
def _scale(
    images, scale, shift, residual, result, numbers, blocks,
    CHANNELS: tl.constexpr, RECTIFIED: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    first = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK
    place = first + tl.arange(0, BLOCK)
    inside = place < numbers
    channel = ((first % CHANNELS).to(tl.int32) + tl.arange(0, BLOCK)) % CHANNELS
    places = lane * numbers + place
    value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.load(scale + lane * CHANNELS + channel) + tl.load(shift + lane * CHANNELS + channel)
    if residual is not None:
        value += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    if RECTIFIED:
        value = tl.maximum(value, 0.0)
    tl.store(result + places, value.to(result.dtype.element_ty), mask=inside)
