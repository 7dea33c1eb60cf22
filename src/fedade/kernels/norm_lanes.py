# ruff: noqa: N803, N806 - Triton's compile-time constants are written as constants
"""Layer normalisation of tokens as an operation that `vmap` turns into lanes of one kernel, there and back.

Tokens are `[lanes, rows, channels]`, weights and biases `[lanes, channels]`; one lane is shared by all. A row fits into
a program, which reads it once; its statistics are kept for gradients.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, LaneGradient, as_lanes, dense_lanes, mapped_again, summed_if_shared
from fedade.kernels.tilings import power_of_two

TILE, BREADTH, ROWS_PER_PIECE = 4096, 32, 2048
"""Numbers that a program holds at a time; channels for whose weights it sums gradients, and over how many rows."""


def layer_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of one client's tokens `[..., channels]`; and the tokens, for whoever else reads them."""
    flat, how = tokens.reshape(1, -1, tokens.shape[-1]), (eps, dtype, torch.is_grad_enabled())
    result, passed, *_ = LayerNorm.apply(how, flat, weight[None], bias[None])
    return result.reshape(tokens.shape), passed.reshape(tokens.shape)


class LayerNorm(Function):
    """weight (x - mean) / √(variance + eps) + bias; x, so that one kernel adds what comes back to both; and, where
    gradients are wanted, mean and 1 / √(variance + eps), `[lanes, rows, 2]`."""

    @staticmethod
    def forward(
        how: tuple[float, torch.dtype, bool], tokens: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        """Run the kernel."""
        eps, dtype, kept = how
        lanes, channels = max(len(tokens), len(weight), len(bias)), tokens.shape[-1]
        rows = tokens.shape[1]
        values = tokens.expand(lanes, -1, -1).contiguous()
        scale, shift = (dense_lanes(value.float()) for value in (weight, bias))
        result = room(values, values.shape, dtype)
        statistics = room(values, (lanes, rows, 2), torch.float32) if kept else None
        block = power_of_two(channels)
        at_once = max(1, TILE // block)
        blocks = triton.cdiv(rows, at_once)
        launch(_normalise, blocks, lanes)(
            values, scale, shift, result, statistics, eps, rows, blocks, _step(scale), _step(shift), channels, block,
            at_once,
        )  # fmt: skip
        passed = tokens.view_as(tokens)
        return (result, passed) if statistics is None else (result, passed, statistics)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the gradients need."""
        (_, _, kept), tokens, weight, bias = inputs
        if not kept:
            return
        ctx.kinds = [(len(value), value.dtype) for value in (tokens, weight, bias)]
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(tokens, weight, output[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, passed: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """Gradients of tokens, weight and bias."""
        if gradient is None:
            return None, passed, None, None
        added = passed if passed is not None and len(passed) == len(gradient) else None
        results = LayerNormGradient.apply(gradient, added, *ctx.saved_tensors)
        of_tokens, *others = (
            summed_if_shared(result, lanes).to(dtype) for result, (lanes, dtype) in zip(results, ctx.kinds, strict=True)
        )
        return None, of_tokens if passed is None or passed is added else of_tokens + passed, *others

    @staticmethod
    def vmap(info: Any, in_dims: Any, how: Any, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Mapped weights make lanes; otherwise tokens of all clients are more rows."""
        batch, dims = info.batch_size, in_dims[1:]
        if dims[1] is None and dims[2] is None:
            joined = tensors[0].movedim(dims[0] or 0, 1).flatten(1, 2)
            result, passed, *statistics = LayerNorm.apply(how, joined, *tensors[1:])
            results = tuple(value.unflatten(1, (batch, -1)) for value in (result, passed, *statistics))
            return results, (1,) * len(results)
        return mapped_again(batch, LayerNorm.apply(how, *as_lanes(batch, dims, tensors)))


class LayerNormGradient(LaneGradient):
    """The gradient of `LayerNorm`; what is `added` has come back to the tokens otherwise."""

    @staticmethod
    def forward(
        gradient: Tensor, added: Tensor | None, tokens: Tensor, weight: Tensor, statistics: Tensor
    ) -> tuple[Tensor, ...]:
        """Gradients of tokens, weight and bias, with all lanes."""
        lanes, (rows, channels) = max(map(len, (gradient, tokens, weight))), tokens.shape[1:]
        back, values, known = (value.expand(lanes, -1, -1).contiguous() for value in (gradient, tokens, statistics))
        further = None if added is None else added.expand(lanes, -1, -1).contiguous()
        scale = dense_lanes(weight.float())
        result = room(values, values.shape)
        pieces, tiles = triton.cdiv(rows, ROWS_PER_PIECE), triton.cdiv(channels, BREADTH)
        sums = room(values, (2, lanes, pieces, channels), torch.float32)
        block = power_of_two(channels)
        at_once = max(1, TILE // block)
        blocks = triton.cdiv(rows, at_once)
        launch(_normalise_back, lanes, blocks + tiles * pieces)(
            back, further, values, scale, known, result, sums, rows, blocks, pieces, lanes, _step(scale), channels,
            block, at_once, BREADTH, TILE // BREADTH, ROWS_PER_PIECE,
        )  # fmt: skip
        of_weight, of_bias = (sums.squeeze(2) if pieces == 1 else sums.sum(2)).unbind(0)
        return result, of_weight, of_bias

    @staticmethod
    def vmap(info: Any, in_dims: Dims, *tensors: Tensor | None) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = LayerNormGradient.apply(*as_lanes(info.batch_size, in_dims, tensors))
        return mapped_again(info.batch_size, results)


def _step(lanes: Tensor) -> int:
    """From one lane to the next; nothing where all share one."""
    return 0 if len(lanes) == 1 else lanes.stride(0)


@triton.jit(do_not_specialize=["rows", "blocks", "weight_lane", "bias_lane"])
def _normalise(
    tokens, weight, bias, result, statistics, eps, rows, blocks, weight_lane, bias_lane,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK)
    known = channel < CHANNELS
    inside = (row < rows)[:, None] & known[None, :]
    places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
    value = tl.load(tokens + places, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=1) / CHANNELS
    centred = tl.where(inside, value - mean[:, None], 0.0)
    narrowness = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / CHANNELS + eps)
    if statistics is not None:
        known_of_row = statistics + (lane * rows + row) * 2
        tl.store(known_of_row, mean, mask=row < rows)
        tl.store(known_of_row + 1, narrowness, mask=row < rows)
    scale = tl.load(weight + lane * weight_lane + channel, mask=known, other=0.0)
    shift = tl.load(bias + lane * bias_lane + channel, mask=known, other=0.0)
    normal = centred * narrowness[:, None] * scale[None, :] + shift[None, :]
    tl.store(result + places, normal.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _normal(tokens, statistics, lane, rows, row, places, inside):
    """Rows of a lane, as they are before weight and bias, and 1 / √(variance + eps)."""
    value = tl.load(tokens + places, mask=inside, other=0.0).to(tl.float32)
    known_of_row = statistics + (lane * rows + row) * 2
    mean = tl.load(known_of_row, mask=row < rows, other=0.0)
    narrowness = tl.load(known_of_row + 1, mask=row < rows, other=0.0)
    return tl.where(inside, (value - mean[:, None]) * narrowness[:, None], 0.0), narrowness


@triton.jit
def _back_to_tokens(
    gradient, added, tokens, weight, statistics, result, rows, block, lane, weight_lane,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of some whole rows."""
    row, channel = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    known = channel < CHANNELS
    inside = (row < rows)[:, None] & known[None, :]
    places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
    normal, narrowness = _normal(tokens, statistics, lane, rows, row, places, inside)
    scale = tl.load(weight + lane * weight_lane + channel, mask=known, other=0.0)
    weighted = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32) * scale[None, :]
    along = (tl.sum(weighted * normal, axis=1) / CHANNELS)[:, None]
    own = (weighted - (tl.sum(weighted, axis=1) / CHANNELS)[:, None] - normal * along) * narrowness[:, None]
    if added is not None:
        own += tl.load(added + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + places, own.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _back_to_weights(
    gradient, tokens, statistics, of_weights, of_biases, rows, tile, piece, lane,
    CHANNELS: tl.constexpr, BREADTH: tl.constexpr, HEIGHT: tl.constexpr, PER_PIECE: tl.constexpr,
):  # fmt: skip
    """Of some channels, summed over many rows."""
    channel = tile * BREADTH + tl.arange(0, BREADTH)
    known = channel < CHANNELS
    of_weight = tl.zeros((HEIGHT, BREADTH), dtype=tl.float32)
    of_bias = tl.zeros((HEIGHT, BREADTH), dtype=tl.float32)
    for first in range(piece * PER_PIECE, tl.minimum((piece + 1) * PER_PIECE, rows), HEIGHT):
        row = first + tl.arange(0, HEIGHT)
        inside = (row < rows)[:, None] & known[None, :]
        places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
        normal, _ = _normal(tokens, statistics, lane, rows, row, places, inside)
        back = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        of_weight += back * normal
        of_bias += back
    tl.store(of_weights + channel, tl.sum(of_weight, axis=0), mask=known)
    tl.store(of_biases + channel, tl.sum(of_bias, axis=0), mask=known)


@triton.jit(do_not_specialize=["rows", "blocks", "pieces", "lanes", "weight_lane"])
def _normalise_back(
    gradient, added, tokens, weight, statistics, result, sums, rows, blocks, pieces, lanes, weight_lane,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BREADTH: tl.constexpr, HEIGHT: tl.constexpr,
    PER_PIECE: tl.constexpr,
):  # fmt: skip
    """sums[0, lane, piece] is the gradient of the weight by the piece's rows, sums[1] that of the bias."""
    TILES: tl.constexpr = (CHANNELS + BREADTH - 1) // BREADTH
    program = tl.program_id(0)
    if program < blocks * lanes:
        _back_to_tokens(
            gradient, added, tokens, weight, statistics, result, rows, program % blocks,
            (program // blocks).to(tl.int64), weight_lane, CHANNELS, BLOCK, ROWS,
        )  # fmt: skip
    else:
        number = program - blocks * lanes
        piece, place = number // TILES % pieces, (number // TILES).to(tl.int64)
        own = sums + place * CHANNELS
        _back_to_weights(
            gradient, tokens, statistics, own, own + lanes.to(tl.int64) * pieces * CHANNELS, rows, number % TILES,
            piece, place // pieces, CHANNELS, BREADTH, HEIGHT, PER_PIECE,
        )  # fmt: skip
