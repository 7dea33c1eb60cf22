# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""Images normalised per channel as an operation that `vmap` turns into lanes of one kernel, and of two back.

Images are `[lanes, samples, height, width, channels]`, scales and shifts `[lanes, channels]`, statistics `[lanes, 1,
channels]`, or `[lanes, samples, channels]` where every sample has its own; one lane is shared by all.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import TILE, by_pixel, launch, room, row_blocks
from fedade.kernels.lanes import Dims, LaneGradient, as_lanes, dense_lanes, lane_strides, mapped_again, summed_if_shared
from fedade.kernels.reference import Affine
from fedade.kernels.tilings import power_of_two


def normalised(images: Tensor, affine: Affine, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(affine(images) + residual) of one client, the residual and the relu if asked for."""
    added = None if residual is None else by_pixel(residual)[None]
    mean, variance = (value.reshape(1, -1, value.shape[-1]) for value in (affine.mean, affine.variance))
    of_channels = affine.scale[None], affine.shift[None], mean, variance
    result: Tensor = Scaled.apply(affine.eps, relu, by_pixel(images)[None], *of_channels, added)
    return result.squeeze(0).permute(0, 3, 1, 2)


class Scaled(Function):
    """relu(scale (x - mean) / √(variance + eps) + shift + residual)."""

    @staticmethod
    def forward(eps: float, relu: bool, images: Tensor, *others: Any) -> Tensor:
        """Run the kernel on images, scale, shift, mean, variance and residual."""
        *of_channels, residual = others
        lanes = max(len(value) for value in (images, *others) if value is not None)
        shape = (lanes, *images.shape[1:])
        pixels = images.expand(shape).contiguous()
        added = None if residual is None else residual.expand(shape).to(images.dtype).contiguous()
        own = [dense_lanes(value.float()) for value in of_channels]
        result, blocks = room(pixels, shape), row_blocks(shape, of_channels[-1].shape[1])
        launch(_scale, *blocks.programs)(
            *(pixels, *own, added, result, eps, blocks.rows, *blocks.programs[:2], blocks.each),
            *(*lane_strides(own), shape[-1], relu, blocks.breadth, blocks.at_once),
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradients need: without a residual, what the relu let through follows from the images."""
        ctx.eps, ctx.relu, *tensors, residual = inputs
        ctx.kinds = [None if tensor is None else (len(tensor), tensor.dtype) for tensor in (*tensors, residual)]
        ctx.save_for_backward(*tensors, *([output] if ctx.relu and residual is not None else []))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the tensors that need one."""
        tensors, output = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        needed = ctx.needs_input_grad[2:]
        passed = needed[0], needed[5] and ctx.relu
        results = ScaledGradient.apply(ctx.eps, ctx.relu, passed, gradient, *tensors, *(output or [None]))
        whole = iter(results[4:])
        of_images = next(whole) if passed[0] else None
        of_residual = next(whole) if passed[1] else gradient
        return (
            None,
            None,
            *(
                summed_if_shared(result, kind[0]).to(kind[1]) if need else None
                for result, need, kind in zip((of_images, *results[:4], of_residual), needed, ctx.kinds, strict=True)
            ),
        )

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, relu: bool, *tensors: Tensor | None) -> tuple[Tensor, int]:
        """Clients are lanes."""
        result: Tensor = Scaled.apply(eps, relu, *as_lanes(info.batch_size, in_dims[2:], tensors))
        return result.reshape(info.batch_size, -1, *result.shape[1:]), 0


class ScaledGradient(LaneGradient):
    """The gradient of `Scaled`."""

    @staticmethod
    def forward(
        eps: float, relu: bool, passed: tuple[bool, bool], gradient: Tensor, images: Tensor, *others: Any
    ) -> tuple[Tensor, ...]:
        """Gradients of scale, shift, mean and variance; of the images and of the residual, if `passed` on; all with
        every lane."""
        *of_channels, output = others
        given = [value for value in (gradient, images, *others) if value is not None]
        lanes, (samples, height, width, channels) = max(map(len, given)), images.shape[1:]
        shape = (lanes, samples, height, width, channels)
        back, pixels = (value.expand(shape).to(images.dtype).contiguous() for value in (gradient, images))
        gate = None if output is None else output.expand(shape).contiguous()
        own = [dense_lanes(value.float()) for value in of_channels]
        whole = [room(pixels, shape) if wanted else None for wanted in passed]
        sums = room(pixels, (2, lanes, samples, channels), torch.float32)
        each, breadth = of_channels[-1].shape[1], min(128, power_of_two(channels))
        tiles, at_once = triton.cdiv(channels, breadth), max(1, TILE // breadth)
        launch(_scale_back, tiles, samples, lanes)(
            *(back, pixels, *own, gate, *whole, sums, eps, lanes, samples, tiles, 0 if each == 1 else channels),
            *(*lane_strides(own), height * width, channels, relu, breadth, at_once),
        )
        of_parameters = room(sums, (2, lanes, channels))
        of_statistics = room(sums, (2, lanes, each, channels))
        launch(_channel_gradients, tiles, lanes)(
            *(sums, own[0], own[3], of_parameters, of_statistics, eps, lanes, samples, tiles, *lane_strides(own[::3])),
            *(each > 1, channels, breadth, at_once),
        )
        return *of_parameters.unbind(0), *of_statistics.unbind(0), *(result for result in whole if result is not None)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, eps: float, relu: bool, passed: tuple[bool, bool], *tensors: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        lanes = as_lanes(info.batch_size, in_dims[3:], tensors)
        return mapped_again(info.batch_size, ScaledGradient.apply(eps, relu, passed, *lanes))


@triton.jit(do_not_specialize=["rows", "tiles", "blocks", "each"])
def _scale(
    images, scale, shift, mean, variance, residual, result, eps, rows, tiles, blocks, each,
    scale_lane, shift_lane, mean_lane, variance_lane,
    CHANNELS: tl.constexpr, RECTIFIED: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A program sees to some rows of a group's pixels: what their channels have is read once for all of them."""
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    row = (tl.program_id(0) // tiles % blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    group = (tl.program_id(0) // tiles // blocks).to(tl.int64)
    lane, place = group // each, group % each * CHANNELS + channel
    known = channel < CHANNELS
    spread = tl.load(variance + lane * variance_lane + place, mask=known, other=1.0)
    factor = tl.load(scale + lane * scale_lane + channel, mask=known, other=0.0) * tl.rsqrt(spread + eps)
    summand = tl.load(shift + lane * shift_lane + channel, mask=known, other=0.0)
    summand -= tl.load(mean + lane * mean_lane + place, mask=known, other=0.0) * factor
    places = (group * rows + row)[:, None] * CHANNELS + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
    value = value * factor[None, :] + summand[None, :]
    if residual is not None:
        value += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    if RECTIFIED:
        value = tl.maximum(value, 0.0)
    tl.store(result + places, value.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["lanes", "samples", "tiles"])
def _scale_back(
    gradient, images, scale, shift, mean, variance, output, of_images, of_residual, sums, eps, lanes, samples, tiles,
    statistics_step, scale_lane, shift_lane, mean_lane, variance_lane,
    PLANE: tl.constexpr, CHANNELS: tl.constexpr, RECTIFIED: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A program sees to a sample. sums[0] is what arrived, sums[1] that times the distance from the mean."""
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    image = (tl.program_id(0) // tiles).to(tl.int64)
    lane, place = image // samples, image % samples * statistics_step + channel
    known = channel < CHANNELS
    spread = tl.load(variance + lane * variance_lane + place, mask=known, other=1.0)
    factor = tl.load(scale + lane * scale_lane + channel, mask=known, other=0.0) * tl.rsqrt(spread + eps)
    offset = tl.load(shift + lane * shift_lane + channel, mask=known, other=0.0)
    centre = tl.load(mean + lane * mean_lane + place, mask=known, other=0.0)
    arrived = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    along = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    for first in range(0, PLANE, ROWS):
        pixel = first + tl.arange(0, ROWS)
        inside = (pixel < PLANE)[:, None] & known[None, :]
        places = (image * PLANE + pixel)[:, None] * CHANNELS + channel[None, :]
        back = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
        if RECTIFIED:
            if output is not None:
                passed = tl.load(output + places, mask=inside, other=0.0).to(tl.float32)
            else:
                passed = value * factor[None, :] + (offset - centre * factor)[None, :]
            back = tl.where(passed > 0, back, 0.0)
        arrived += back
        along += back * (value - centre[None, :])
        if of_images is not None:
            tl.store(of_images + places, (back * factor[None, :]).to(of_images.dtype.element_ty), mask=inside)
        if of_residual is not None:
            tl.store(of_residual + places, back.to(of_residual.dtype.element_ty), mask=inside)
    where = image * CHANNELS + channel
    tl.store(sums + where, tl.sum(arrived, axis=0), mask=known)
    tl.store(sums + lanes.to(tl.int64) * samples * CHANNELS + where, tl.sum(along, axis=0), mask=known)


@triton.jit(do_not_specialize=["lanes", "samples", "tiles"])
def _channel_gradients(
    sums, scale, variance, of_parameters, of_statistics, eps, lanes, samples, tiles, scale_lane, variance_lane,
    OF_SAMPLES: tl.constexpr, CHANNELS: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of a lane's scale and shift, then of its mean and variance, from the sums of its samples."""
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    lane = (tl.program_id(0) // tiles).to(tl.int64)
    known = channel < CHANNELS
    factor = tl.load(scale + lane * scale_lane + channel, mask=known, other=0.0)[None, :]
    arrived = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    along = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    of_scale = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    every, own = lanes.to(tl.int64) * CHANNELS, lane * CHANNELS + channel
    for first in range(0, samples, ROWS):
        sample = first + tl.arange(0, ROWS)
        inside = (sample < samples)[:, None] & known[None, :]
        places = (lane * samples + sample)[:, None] * CHANNELS + channel[None, :]
        came = tl.load(sums + places, mask=inside, other=0.0)
        times = tl.load(sums + every * samples + places, mask=inside, other=0.0)
        arrived += came
        along += times
        if OF_SAMPLES:
            of_sample = variance + lane * variance_lane + sample[:, None] * CHANNELS + channel[None, :]
            narrow = tl.rsqrt(tl.load(of_sample, mask=inside, other=1.0) + eps)
            of_scale += times * narrow
            tl.store(of_statistics + places, -factor * narrow * came, mask=inside)
            of_variance = -0.5 * factor * narrow * narrow * narrow * times
            tl.store(of_statistics + every * samples + places, of_variance, mask=inside)
    tl.store(of_parameters + every + own, tl.sum(arrived, axis=0), mask=known)
    if OF_SAMPLES:
        tl.store(of_parameters + own, tl.sum(of_scale, axis=0), mask=known)
    else:
        narrow = tl.rsqrt(tl.load(variance + lane * variance_lane + channel, mask=known, other=1.0) + eps)
        width = tl.load(scale + lane * scale_lane + channel, mask=known, other=0.0) * narrow
        times = tl.sum(along, axis=0)
        tl.store(of_parameters + own, times * narrow, mask=known)
        tl.store(of_statistics + own, -width * tl.sum(arrived, axis=0), mask=known)
        tl.store(of_statistics + every + own, -0.5 * width * narrow * narrow * times, mask=known)
