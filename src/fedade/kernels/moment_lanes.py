# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""Moments of images as operations that `vmap` turns into lanes of one kernel, which reads an image once.

Images are `[lanes, samples, height, width, channels]`, statistics `[lanes, samples, channels]`, or `[lanes, 1,
channels]` of a whole batch. Where gradients run back through these, the images are handed through: the gradient of
whoever reads them afterwards is added where that of the statistics is made, without a pass over the images of its own.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import TILE, by_pixel, launch, room, row_blocks
from fedade.kernels.lanes import Dims, LaneGradient, as_lanes, dense_lanes, lane_strides, mapped_again, summed_if_shared
from fedade.kernels.tilings import power_of_two


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]` in float32, without gradients."""
    result: Tensor = _Moments.apply(images)
    return result


def measured(images: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The images `[n, channels, height, width]` of one client, to be read instead of those that were given; means and
    (biased) variances, `[n, channels]`, or `[1, channels]` of the whole batch."""
    means, variances, same = ImageMeasures.apply(whole, by_pixel(images)[None])
    return same.squeeze(0).permute(0, 3, 1, 2), means.squeeze(0), variances.squeeze(0)


def _of_samples(pixels: Tensor, centred: bool) -> Tensor:
    """Mean and mean square, or variance if `centred`, of `[samples, height, width, channels]`."""
    samples, height, width, channels = pixels.shape
    result = room(pixels, (2, samples, channels), torch.float32)
    breadth = min(128, power_of_two(channels))
    tiles = triton.cdiv(channels, breadth)
    launch(_moments, tiles, samples)(
        pixels, result, samples, tiles, height * width, channels, centred, breadth, max(1, TILE // breadth)
    )
    return result


class _Moments(Function):
    @staticmethod
    def forward(images: Tensor) -> Tensor:
        """Run the kernel."""
        return _of_samples(by_pixel(images).contiguous(), centred=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, images: Tensor) -> tuple[Tensor, int]:
        """Images of all clients are one batch."""
        joined = images.movedim(in_dims[0] or 0, 0).flatten(0, 1)
        return channel_moments(joined).unflatten(1, (info.batch_size, -1)), 1


class ImageMeasures(Function):
    """Means and variances, and the images again."""

    @staticmethod
    def forward(whole: bool, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the kernels."""
        pixels = images.contiguous()
        lanes, samples, *_, channels = pixels.shape
        of_samples = _of_samples(pixels.flatten(0, 1), centred=True).unflatten(1, (lanes, samples))
        if whole:
            found = room(of_samples, (2, lanes, 1, channels))
            breadth = min(128, power_of_two(channels))
            tiles = triton.cdiv(channels, breadth)
            launch(_of_batch, tiles, lanes)(
                of_samples, found, samples, tiles, lanes, channels, breadth, max(1, TILE // breadth)
            )
        means, variances = (found if whole else of_samples).unbind(0)
        return means, variances, pixels.view_as(pixels)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the gradient needs."""
        ctx.lanes = len(inputs[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], output[0])

    @staticmethod
    def backward(ctx: Any, of_means: Tensor | None, of_variances: Tensor | None, back: Tensor | None) -> Any:
        """The gradient of the images."""
        if of_means is None and of_variances is None:
            return None, back
        images, means = ctx.saved_tensors
        of_means, of_variances = (
            torch.zeros_like(means) if gradient is None else gradient for gradient in (of_means, of_variances)
        )
        (result,) = ImageMeasuresGradient.apply(images, means, of_means, of_variances, back)
        return None, summed_if_shared(result, ctx.lanes)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, whole: bool, images: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = ImageMeasures.apply(whole, *as_lanes(info.batch_size, in_dims[1:], [images]))
        return mapped_again(info.batch_size, results)


class ImageMeasuresGradient(LaneGradient):
    """The gradient of `ImageMeasures`."""

    @staticmethod
    def forward(
        images: Tensor, means: Tensor, of_means: Tensor, of_variances: Tensor, back: Tensor | None
    ) -> tuple[Tensor]:
        """Of the images, with all lanes."""
        given = (images, means, of_means, of_variances, back)
        lanes = max(len(value) for value in given if value is not None)
        shape = (lanes, *images.shape[1:])
        pixels = images.expand(shape).contiguous()
        added = None if back is None else back.expand(shape).to(images.dtype).contiguous()
        own = [dense_lanes(value.float()) for value in (means, of_means, of_variances)]
        result, blocks = room(pixels, shape), row_blocks(shape, means.shape[1])
        launch(_measure_back, *blocks.programs)(
            *(pixels, *own, added, result, blocks.rows, *blocks.programs[:2], blocks.each, *lane_strides(own)),
            *(shape[-1], blocks.breadth, blocks.at_once),
        )
        return (result,)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, *tensors: Tensor | None) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = ImageMeasuresGradient.apply(*as_lanes(info.batch_size, in_dims, tensors))
        return mapped_again(info.batch_size, results)


@triton.jit(do_not_specialize=["samples", "tiles"])
def _moments(
    images, result, samples, tiles,
    PLANE: tl.constexpr, CHANNELS: tl.constexpr, CENTRED: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Means and mean squares; or variances, as squares of differences to a pixel: no difference of large numbers."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    known = channel < CHANNELS
    origin = tl.zeros((BREADTH,), dtype=tl.float32)
    if CENTRED:
        origin += tl.load(images + sample * PLANE * CHANNELS + channel, mask=known, other=0.0).to(tl.float32)
    sums = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    squares = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    for first in range(0, PLANE, ROWS):
        pixel = first + tl.arange(0, ROWS)
        inside = (pixel < PLANE)[:, None] & known[None, :]
        places = (sample * PLANE + pixel)[:, None] * CHANNELS + channel[None, :]
        value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            value = tl.where(inside, value - origin[None, :], 0.0)
        sums += value
        squares += value * value
    mean, square = tl.sum(sums, axis=0) / PLANE, tl.sum(squares, axis=0) / PLANE
    if CENTRED:
        square = tl.maximum(square - mean * mean, 0.0)
    place = sample * CHANNELS + channel
    tl.store(result + place, origin + mean, mask=known)
    tl.store(result + samples.to(tl.int64) * CHANNELS + place, square, mask=known)


@triton.jit(do_not_specialize=["samples", "tiles", "lanes"])
def _of_batch(
    of_samples, result, samples, tiles, lanes, CHANNELS: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Mean and variance of a lane's samples together. Means are summed as differences to the first of them, so that
    no small variance is the difference of large squares."""
    lane = (tl.program_id(0) // tiles).to(tl.int64)
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    known = channel < CHANNELS
    own = of_samples + lane * samples * CHANNELS + channel
    variances = lanes.to(tl.int64) * samples * CHANNELS
    first = tl.load(own, mask=known, other=0.0)
    apart = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    spread = tl.zeros((ROWS, BREADTH), dtype=tl.float32)
    for start in range(0, samples, ROWS):
        sample = start + tl.arange(0, ROWS)
        inside = (sample < samples)[:, None] & known[None, :]
        places = own[None, :] + sample[:, None] * CHANNELS
        difference = tl.where(inside, tl.load(places, mask=inside, other=0.0) - first[None, :], 0.0)
        apart += difference
        spread += tl.load(places + variances, mask=inside, other=0.0) + difference * difference
    mean = tl.sum(apart, axis=0) / samples
    variance = tl.maximum(tl.sum(spread, axis=0) / samples - mean * mean, 0.0)
    place = lane * CHANNELS + channel
    tl.store(result + place, first + mean, mask=known)
    tl.store(result + lanes.to(tl.int64) * CHANNELS + place, variance, mask=known)


@triton.jit(do_not_specialize=["rows", "tiles", "blocks", "each"])
def _measure_back(
    images, mean, of_mean, of_variance, back, result, rows, tiles, blocks, each,
    mean_lane, of_mean_lane, of_variance_lane, CHANNELS: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """result = back + (of_mean + 2 of_variance (images - mean)) / rows."""
    channel = tl.program_id(0) % tiles * BREADTH + tl.arange(0, BREADTH)
    row = (tl.program_id(0) // tiles % blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    group = (tl.program_id(0) // tiles // blocks).to(tl.int64)
    lane, place = group // each, group % each * CHANNELS + channel
    known = channel < CHANNELS
    slope = 2 * tl.load(of_variance + lane * of_variance_lane + place, mask=known, other=0.0) / rows
    summand = tl.load(of_mean + lane * of_mean_lane + place, mask=known, other=0.0) / rows
    centre = tl.load(mean + lane * mean_lane + place, mask=known, other=0.0)
    places = (group * rows + row)[:, None] * CHANNELS + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    value = tl.load(images + places, mask=inside, other=0.0).to(tl.float32)
    value = (value - centre[None, :]) * slope[None, :] + summand[None, :]
    if back is not None:
        value += tl.load(back + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + places, value.to(result.dtype.element_ty), mask=inside)
