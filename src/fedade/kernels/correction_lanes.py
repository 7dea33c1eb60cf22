"""A layer's correction as one kernel for all clients: written in PyTorch it is some fifty, each far shorter than its
launch takes."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.correction import CorrectedLayer, Correcting, CorrectionRule
from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, as_lanes, dense_lanes, lane_strides, mapped_again

TINY: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).tiny)
EPS = torch.finfo(torch.float32).eps
TILE = 8192
"""Numbers of each moment that a program reads at a time."""
NUM_COMMON = 3
"""Tensors at the end of `Correcting` that all clients share."""


def corrected_layer(given: Correcting, rule: CorrectionRule) -> CorrectedLayer:
    """Of one client; `vmap` makes lanes of clients."""
    own = [None if tensor is None else tensor[None] for tensor in given[:-NUM_COMMON]]
    results: tuple[Tensor, ...] = _Corrected.apply(rule, *own, *given[-NUM_COMMON:])
    moments, found, sizes, samples, trust, heard = (result.squeeze(0) for result in results)
    return CorrectedLayer(moments, found[0], found[1], sizes, samples, trust, (heard[0], heard[1]))


class _Corrected(Function):
    """Without a gradient: nothing learns through it."""

    @staticmethod
    def forward(rule: CorrectionRule, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the kernel; a program sees to one client."""
        lanes = max(len(tensor) for tensor in tensors[:-NUM_COMMON] if tensor is not None)
        own: list[Any] = [None if tensor is None else dense_lanes(tensor) for tensor in tensors[1:-NUM_COMMON]]
        # Of all clients the means come first, and then the mean squares: they are not brought together for each.
        own = [tensors[0] if tensors[0][0, 0].is_contiguous() else tensors[0].contiguous(), *own]
        given = Correcting(*own, *(tensor.contiguous() for tensor in tensors[-NUM_COMMON:]))
        conditions, channels = given.sizes.shape[1], given.mean.shape[-1]
        block = triton.next_power_of_2(channels)
        even, unsure = (0.0, 0.0) if rule.evenness is None else (rule.evenness, 1 / max(1 - rule.evenness, EPS))
        shapes = (2, channels), (2, channels), (1, 2, channels), (1, 2, 1), (1, 2, 1), (2, conditions)
        results = tuple(room(given.moments, (lanes, *shape)) for shape in shapes)
        launch(_correct, lanes)(
            *given,
            *results,
            *lane_strides(own),
            *(given.moments.stride(1), rule.first_channel, rule.layer, given.moments.shape[2], conditions),
            *(len(given.scarcity), given.within.shape[-1], given.samples.shape[-1], rule.channels_heard),
            *(float(rule.samples), even, unsure, 1 / rule.samples_of_prior, rule.doubt, rule.new),
            *(rule.fewest_samples, rule.least_variance, rule.recognises, channels, block),
            max(1, min(16, TILE // block)),
            num_warps=min(16, max(1, block // 32)),
        )
        return results

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, rule: CorrectionRule, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes; what is known of classes is common to all."""
        if any(dim is not None for dim in in_dims[-NUM_COMMON:]):
            raise NotImplementedError("the same moments of classes for all")
        lanes = as_lanes(info.batch_size, in_dims[1:-NUM_COMMON], tensors[:-NUM_COMMON])
        results: tuple[Tensor, ...] = _Corrected.apply(rule, *lanes, *tensors[-NUM_COMMON:])
        return mapped_again(info.batch_size, results)


_VARYING = ["first_channel", "layer", "rows", "conditions", "classes", "together", "layers", "channels_heard"]


@triton.jit(do_not_specialize=_VARYING)
def _correct(
    moments, mean, variance, prior, sizes, samples, squares, widths, class_means, within, scarcity,
    shown, found, new_sizes, new_samples, trusts, heard,
    moments_lane, mean_lane, variance_lane, prior_lane, sizes_lane, samples_lane, squares_lane, widths_lane,
    moment_step, first_channel, layer, rows, conditions, classes, together, layers, channels_heard,
    samples_of_batch, even, unsure, prior_share, doubt, new, fewest, least_variance,
    RECOGNISES: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64)
    channel, moment = tl.arange(0, BLOCK)[None, :], tl.arange(0, 2)[:, None]
    inside = (channel < CHANNELS) & (moment < 2)
    place = moment * CHANNELS + channel
    in_group = moment * together + first_channel + channel
    # What the batch shows, and what classes explain of it: each a sum over rows of channels, some of them at once.
    some, deep = tl.arange(0, AT_ONCE), inside[:, None, :]
    mean_of_batch = tl.zeros((2, BLOCK), dtype=tl.float32)
    for first in range(0, rows, AT_ONCE):
        row = first + some[None, :, None]
        where = moment[:, None, :].to(tl.int64) * moment_step + row * CHANNELS + channel[:, None, :]
        part = tl.load(moments + lane * moments_lane + where, mask=deep & (row < rows), other=0.0)
        mean_of_batch += tl.sum(part, axis=1)
    mean_of_batch /= rows
    expected = tl.zeros((2, BLOCK), dtype=tl.float32)
    scarce, pure = 0.0, 0.0
    for first in range(0, classes, AT_ONCE):
        row = first + some
        share = tl.load(prior + lane * prior_lane + row, mask=row < classes, other=0.0)
        where = (moment[:, None, :] * classes + row[None, :, None]) * together + first_channel + channel[:, None, :]
        of_class = tl.load(class_means + where, mask=deep & (row < classes)[None, :, None], other=0.0)
        expected += tl.sum(share[None, :, None] * of_class, axis=1)
        scarce += tl.sum(share * share * tl.load(scarcity + row, mask=row < classes, other=0.0), axis=0)
        pure += tl.sum(share * share, axis=0)
    between, other = tl.zeros((2, BLOCK), dtype=tl.float32), tl.zeros((2, BLOCK), dtype=tl.float32)
    for first in range(0, classes, AT_ONCE):
        row = first + some
        share = tl.load(prior + lane * prior_lane + row, mask=row < classes, other=0.0)
        where = (moment[:, None, :] * classes + row[None, :, None]) * together + first_channel + channel[:, None, :]
        apart = tl.load(class_means + where, mask=deep & (row < classes)[None, :, None], other=0.0)
        apart -= expected[:, None, :]
        between += tl.sum(share[None, :, None] * apart * apart, axis=1)
        other += tl.sum(tl.where((row < classes)[None, :, None], apart * apart, 0.0), axis=1)
    around = tl.load(within + in_group, mask=inside, other=1.0)
    spread = around + between
    uncertainty = tl.maximum(around * scarce + between * prior_share, TINY)
    size = mean_of_batch - expected
    # A forecast may be of other classes than came: the batch then counts for fewer samples.
    distance = tl.sum(tl.where(inside, other / tl.maximum(spread, TINY), 0.0), axis=1) / (classes * CHANNELS)
    batch = 1 / (1 / samples_of_batch + unsure * tl.maximum(pure - even, 0.0) * distance)
    # Which condition the batch came in.
    counts = samples + lane * samples_lane + layer + tl.arange(0, 2) * layers
    remembered = sizes + lane * sizes_lane + in_group
    likeliest, chosen, told = float("inf"), 0, 0.0
    far = tl.zeros((2,), dtype=tl.float32)
    for condition in range(conditions):
        count = tl.load(counts + condition * 2 * layers)
        width = 1 / batch + 1 / tl.maximum(count, fewest)
        difference = size - tl.load(remembered + condition * 2 * together, mask=inside, other=0.0)
        weighted = difference * difference / tl.maximum(spread * width[:, None], TINY)
        square = tl.sum(tl.where(inside, weighted, 0.0), axis=1)
        said = tl.sum(square, axis=0)
        wide = CHANNELS * tl.sum(tl.log(width), axis=0)
        if squares is not None:
            said += tl.load(squares + lane * squares_lane + condition)
            wide += tl.load(widths + lane * widths_lane + condition)
        tl.store(heard + lane * 2 * conditions + condition, said)
        tl.store(heard + (lane * 2 + 1) * conditions + condition, wide)
        likelier = (said + wide < likeliest) | (condition == 0)
        likeliest = tl.where(likelier, said + wide, likeliest)
        chosen = tl.where(likelier, condition, chosen)
        told = tl.where(likelier, said, told)
        far = tl.where(likelier, square, far)
    # What it and the batch say together.
    count = tl.load(counts + chosen * 2 * layers)
    if RECOGNISES:
        count = tl.where(told / channels_heard <= new, count, 0.0)
    allowed = doubt * CHANNELS
    share_kept = allowed / tl.maximum(far, tl.maximum(allowed, TINY))
    kept = share_kept * share_kept * count
    total = kept + batch
    past = tl.load(remembered + chosen * 2 * together, mask=inside, other=0.0)
    left = (kept[:, None] * past + batch[:, None] * size) / total[:, None]
    # How much of it is believed.
    chance = uncertainty + spread / total[:, None]
    ratio = tl.sum(tl.where(inside, left * left / chance, 0.0), axis=1) / CHANNELS
    trust = tl.maximum(1 - doubt / tl.maximum(ratio, TINY), 0.0)
    shift = trust[:, None] * left
    first = tl.sum(tl.where(moment == 0, shift, 0.0), axis=0)
    second = tl.sum(tl.where(moment == 1, shift, 0.0), axis=0)
    entry = tl.arange(0, BLOCK)
    known = entry < CHANNELS
    deployed_mean = tl.load(mean + lane * mean_lane + entry, mask=known, other=0.0)
    deployed = tl.load(variance + lane * variance_lane + entry, mask=known, other=0.0)
    moved = deployed + second - first * (first + 2 * deployed_mean)
    tl.store(found + lane * 2 * CHANNELS + entry, deployed_mean + first, mask=known)
    tl.store(found + (lane * 2 + 1) * CHANNELS + entry, tl.maximum(moved, least_variance * deployed), mask=known)
    tl.store(shown + lane * 2 * CHANNELS + place, mean_of_batch, mask=inside)
    tl.store(new_sizes + lane * 2 * CHANNELS + place, left, mask=inside)
    tl.store(new_samples + lane * 2 + tl.arange(0, 2), total)
    tl.store(trusts + lane * 2 + tl.arange(0, 2), trust)
