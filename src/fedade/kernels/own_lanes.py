"""Statistics of each sample's own as one kernel for all clients, and one where it is known what they follow from."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.correction_lanes import TILE, TINY
from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, as_lanes, dense_lanes, lane_strides, mapped_again

MOST_SAMPLES = 64
"""Whose own moments a program reads at a time."""
BLOCK = 1024
"""Numbers of statistics that a program gives."""


def own_statistics(
    moments: Tensor,
    common: tuple[Tensor, Tensor],
    usual: Tensor,
    before: Tensor,
    earlier: Tensor | None,
    doubt: float,
    least_variance: float,
    counts: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`[2, 2, C]`: base and share; `[2, n, C]`: mean and variance of every sample; `[]`: how much samples differ, and
    `[2]`: how much in this layer alone. `vmap` makes lanes of clients."""
    given = [None if part is None else part[None] for part in (moments, *common, before, earlier)]
    results: tuple[Tensor, ...] = _Own.apply((doubt, least_variance, counts), usual, *given)
    shares, found, difference, apart = (result.squeeze(0) for result in results)
    return shares, found, difference, apart


class _Own(Function):
    """Without a gradient: nothing learns through it."""

    @staticmethod
    def forward(rule: tuple[float, float, float], usual: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the kernel; a program sees to one client, whose channels judge together."""
        moments = tensors[0] if tensors[0][0, 0].is_contiguous() else tensors[0].contiguous()
        own: list[Any] = [moments, *(None if tensor is None else dense_lanes(tensor) for tensor in tensors[1:])]
        lanes, (samples, channels) = max(len(part) for part in own if part is not None), moments.shape[2:]
        shapes: tuple[tuple[int, ...], ...] = (2, 2, channels), (2, samples, channels), (), (2,)
        results = tuple(room(moments, (lanes, *shape)) for shape in shapes)
        block = triton.next_power_of_2(channels)
        at_once = max(1, min(MOST_SAMPLES, triton.next_power_of_2(samples), TILE // block))
        launch(_own, lanes)(
            *own, usual.contiguous(), *results, *lane_strides(own), moments.stride(1), samples, *rule,
            channels, block, at_once, num_warps=min(16, max(4, block // 32)),
        )  # fmt: skip
        return results

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, rule: Any, usual: Tensor, *tensors: Any) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        if in_dims[1] is not None:
            raise NotImplementedError("the same reference set for all")
        lanes = as_lanes(info.batch_size, in_dims[2:], tensors)
        results: tuple[Tensor, ...] = _Own.apply(rule, usual, *lanes)
        return mapped_again(info.batch_size, results)


def known_statistics(moments: Tensor, share: Tensor, variance: Tensor, least_variance: float) -> Tensor:
    """`[2, n, C]`: mean and variance of every sample, by base and share. `vmap` makes lanes of clients."""
    found: Tensor = _Known.apply(least_variance, *(part[None] for part in (moments, share, variance)))
    return found.squeeze(0)


class _Known(Function):
    """Without a gradient too."""

    @staticmethod
    def forward(least_variance: float, *tensors: Tensor) -> Tensor:
        """Run the kernel; a program sees to some numbers of one client."""
        moments = tensors[0] if tensors[0][0, 0].is_contiguous() else tensors[0].contiguous()
        own = [moments, *(dense_lanes(tensor) for tensor in tensors[1:])]
        lanes, (samples, channels) = max(map(len, own)), moments.shape[2:]
        found, blocks = room(moments, (lanes, 2, samples, channels)), triton.cdiv(samples * channels, BLOCK)
        launch(_known, blocks, lanes)(
            *own, found, *lane_strides(own), moments.stride(1), samples * channels, blocks, least_variance,
            channels, BLOCK,
        )  # fmt: skip
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, least_variance: float, *tensors: Tensor) -> tuple[Tensor, int]:
        """Clients are lanes."""
        found: Tensor = _Known.apply(least_variance, *as_lanes(info.batch_size, in_dims[1:], tensors))
        return found.unflatten(0, (info.batch_size, -1)), 0


@triton.jit(do_not_specialize=["size", "blocks"])
def _known(
    moments, shares, variance, found, moments_lane, shares_lane, variance_lane, moment_step, size, blocks,
    least_variance, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    entry = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    there, channel = entry < size, entry % CHANNELS
    mean = tl.load(moments + lane * moments_lane + entry, mask=there, other=0.0)
    square = tl.load(moments + lane * moments_lane + moment_step + entry, mask=there, other=0.0)
    share = shares + lane * shares_lane + channel
    base_mean = tl.load(share, mask=there, other=0.0)
    base_variance = tl.load(share + CHANNELS, mask=there, other=0.0)
    of_mean = tl.load(share + 2 * CHANNELS, mask=there, other=0.0)
    of_variance = tl.load(share + 3 * CHANNELS, mask=there, other=0.0)
    least = least_variance * tl.load(variance + lane * variance_lane + channel, mask=there, other=0.0)
    wide = base_variance + of_variance * tl.maximum(square - mean * mean, 0.0)
    at = found + lane * 2 * size + entry
    tl.store(at, base_mean + of_mean * mean, mask=there)
    tl.store(at + size, tl.maximum(wide, least), mask=there)


@triton.jit(do_not_specialize=["rows"])
def _own(
    moments, mean, variance, before, earlier, usual, shares, found, differences, apart,
    moments_lane, mean_lane, variance_lane, before_lane, earlier_lane, moment_step, rows, doubt, least_variance, counts,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64)
    entry, some = tl.arange(0, BLOCK), tl.arange(0, AT_ONCE)[:, None]
    channel, known = entry[None, :], entry < CHANNELS
    means, squares = moments + lane * moments_lane + channel, moments + lane * moments_lane + moment_step + channel
    mean_of_batch, variance_of_batch = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, AT_ONCE):
        there = ((first + some) < rows) & known[None, :]
        own = tl.load(means + (first + some) * CHANNELS, mask=there, other=0.0)
        square = tl.load(squares + (first + some) * CHANNELS, mask=there, other=0.0)
        mean_of_batch += tl.sum(own, axis=0)
        variance_of_batch += tl.sum(tl.maximum(square - own * own, 0.0), axis=0)
    mean_of_batch, variance_of_batch = mean_of_batch / rows, variance_of_batch / rows
    means_apart, variances_apart = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, AT_ONCE):
        there = ((first + some) < rows) & known[None, :]
        own = tl.load(means + (first + some) * CHANNELS, mask=there, other=0.0)
        square = tl.load(squares + (first + some) * CHANNELS, mask=there, other=0.0)
        off, wider = own - mean_of_batch[None, :], tl.maximum(square - own * own, 0.0) - variance_of_batch[None, :]
        means_apart += tl.sum(tl.where(there, off * off, 0.0), axis=0)
        variances_apart += tl.sum(tl.where(there, wider * wider, 0.0), axis=0)
    means_apart, variances_apart = means_apart / (rows - 1), variances_apart / (rows - 1)
    usual_means = tl.load(usual + entry, mask=known, other=0.0)
    usual_variances = tl.load(usual + CHANNELS + entry, mask=known, other=0.0)
    of_means = tl.sum(tl.where(known, means_apart / tl.maximum(usual_means, TINY), 0.0), axis=0)
    of_variances = tl.sum(tl.where(known, variances_apart / tl.maximum(usual_variances, TINY), 0.0), axis=0)
    past = before + lane * before_lane
    of_means = (1 - counts) * tl.load(past) + counts * (of_means / CHANNELS)
    of_variances = (1 - counts) * tl.load(past + 1) + counts * (of_variances / CHANNELS)
    tl.store(apart + 2 * lane, of_means)
    tl.store(apart + 2 * lane + 1, of_variances)
    difference = tl.maximum(of_means, of_variances)
    if earlier is not None:
        difference = tl.maximum(difference, tl.load(earlier + lane * earlier_lane))
    tl.store(differences + lane, difference)
    several = tl.where(difference > doubt, 1.0, 0.0)
    of_mean = several * tl.maximum(1 - doubt * usual_means / tl.maximum(means_apart, TINY), 0.0)
    of_variance = several * tl.maximum(1 - doubt * usual_variances / tl.maximum(variances_apart, TINY), 0.0)
    common = tl.load(variance + lane * variance_lane + entry, mask=known, other=0.0)
    base_mean = tl.load(mean + lane * mean_lane + entry, mask=known, other=0.0) - of_mean * mean_of_batch
    base_variance = common - of_mean * (2 - of_mean) * means_apart - of_variance * variance_of_batch
    kept = shares + lane * 4 * CHANNELS + entry
    tl.store(kept, base_mean, mask=known)
    tl.store(kept + CHANNELS, base_variance, mask=known)
    tl.store(kept + 2 * CHANNELS, of_mean, mask=known)
    tl.store(kept + 3 * CHANNELS, of_variance, mask=known)
    for first in range(0, rows, AT_ONCE):
        row = first + some
        there = (row < rows) & known[None, :]
        own = tl.load(means + row * CHANNELS, mask=there, other=0.0)
        square = tl.load(squares + row * CHANNELS, mask=there, other=0.0)
        wide = base_variance[None, :] + of_variance[None, :] * tl.maximum(square - own * own, 0.0)
        at = found + (lane * 2 * rows + row) * CHANNELS + channel
        tl.store(at, base_mean[None, :] + of_mean[None, :] * own, mask=there)
        tl.store(at + rows * CHANNELS, tl.maximum(wide, least_variance * common[None, :]), mask=there)
