# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""Layer normalisation of tokens as an operation that `vmap` turns into lanes of one kernel, there and back.

Tokens are `[lanes, rows, channels]`, weights and biases `[lanes, channels]`; one lane is shared by all. A row fits into
a program, which reads it once and makes its statistics anew where gradients need them.
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

TILE, ROWS_PER_PROGRAM = 4096, 64
"""Numbers that a program holds at a time, and rows whose gradients one program sums."""


def layer_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Of one client's tokens `[..., channels]`."""
    flat = tokens.reshape(1, -1, tokens.shape[-1])
    result: Tensor = LayerNorm.apply(eps, dtype, flat, weight[None], bias[None])
    return result.reshape(tokens.shape)


class LayerNorm(Function):
    """weight (x - mean) / √(variance + eps) + bias."""

    @staticmethod
    def forward(eps: float, dtype: torch.dtype, tokens: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Run the kernel."""
        lanes, channels = max(len(tokens), len(weight), len(bias)), tokens.shape[-1]
        rows = tokens.shape[1]
        values = tokens.expand(lanes, -1, -1).contiguous()
        scale, shift = (dense_lanes(value.float()) for value in (weight, bias))
        result = room(values, values.shape, dtype)
        block = power_of_two(channels)
        at_once = max(1, TILE // block)
        blocks = triton.cdiv(rows, at_once)
        launch(_normalise, blocks, lanes)(
            values, scale, shift, result, eps, rows, blocks, _step(scale), _step(shift), channels, block, at_once
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradients need."""
        ctx.eps, _, tokens, weight, bias = inputs
        ctx.kinds = [(len(value), value.dtype) for value in (tokens, weight, bias)]
        ctx.save_for_backward(tokens, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of tokens, weight and bias."""
        results = LayerNormGradient.apply(ctx.eps, gradient, *ctx.saved_tensors)
        return (
            None,
            None,
            *(
                summed_if_shared(result, lanes).to(dtype)
                for result, (lanes, dtype) in zip(results, ctx.kinds, strict=True)
            ),
        )

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, int]:
        """Mapped weights make lanes; otherwise tokens of all clients are more rows."""
        batch, dims = info.batch_size, in_dims[2:]
        if dims[1] is None and dims[2] is None:
            joined = tensors[0].movedim(dims[0] or 0, 1).flatten(1, 2)
            result: Tensor = LayerNorm.apply(eps, dtype, joined, *tensors[1:])
            return result.unflatten(1, (batch, -1)), 1
        result = LayerNorm.apply(eps, dtype, *as_lanes(batch, dims, tensors))
        return result.reshape(batch, -1, *result.shape[1:]), 0


class LayerNormGradient(LaneGradient):
    """The gradient of `LayerNorm`."""

    @staticmethod
    def forward(eps: float, gradient: Tensor, tokens: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Gradients of tokens, weight and bias, with all lanes."""
        lanes, (rows, channels) = max(map(len, (gradient, tokens, weight))), tokens.shape[1:]
        back, values = (value.expand(lanes, -1, -1).contiguous() for value in (gradient, tokens))
        scale = dense_lanes(weight.float())
        result = room(values, values.shape)
        pieces = triton.cdiv(rows, ROWS_PER_PROGRAM)
        sums = room(values, (2, lanes, pieces, channels), torch.float32)
        block = power_of_two(channels)
        launch(_normalise_back, pieces, lanes)(
            back, values, scale, result, sums, eps, rows, pieces, lanes, _step(scale), channels, block,
            max(1, TILE // block), ROWS_PER_PROGRAM,
        )  # fmt: skip
        return result, *sums.sum(2).unbind(0)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = LayerNormGradient.apply(eps, *as_lanes(info.batch_size, in_dims[1:], tensors))
        return mapped_again(info.batch_size, results)


def _step(lanes: Tensor) -> int:
    """From one lane to the next; nothing where all share one."""
    return 0 if len(lanes) == 1 else lanes.stride(0)


@triton.jit(do_not_specialize=["rows", "blocks", "weight_lane", "bias_lane"])
def _normalise(
    tokens, weight, bias, result, eps, rows, blocks, weight_lane, bias_lane,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    lane = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK)
    known = channel < CHANNELS
    inside = (row < rows)[:, None] & known[None, :]
    places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
    value = tl.load(tokens + places, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - (tl.sum(value, axis=1) / CHANNELS)[:, None], 0.0)
    narrowness = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / CHANNELS + eps)
    scale = tl.load(weight + lane * weight_lane + channel, mask=known, other=0.0)
    shift = tl.load(bias + lane * bias_lane + channel, mask=known, other=0.0)
    normal = centred * narrowness[:, None] * scale[None, :] + shift[None, :]
    tl.store(result + places, normal.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "pieces", "lanes", "weight_lane"])
def _normalise_back(
    gradient, tokens, weight, result, sums, eps, rows, pieces, lanes, weight_lane,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PER_PIECE: tl.constexpr,
):  # fmt: skip
    """sums[0, lane, piece] is the gradient of the weight by the piece's rows, sums[1] that of the bias."""
    piece, lane = tl.program_id(0) % pieces, (tl.program_id(0) // pieces).to(tl.int64)
    channel = tl.arange(0, BLOCK)
    known = channel < CHANNELS
    scale = tl.load(weight + lane * weight_lane + channel, mask=known, other=0.0)
    of_weight = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for first in range(0, PER_PIECE, ROWS):
        row = piece * PER_PIECE + first + tl.arange(0, ROWS)
        inside = ((first + tl.arange(0, ROWS) < PER_PIECE) & (row < rows))[:, None] & known[None, :]
        places = (lane * rows + row)[:, None] * CHANNELS + channel[None, :]
        value = tl.load(tokens + places, mask=inside, other=0.0).to(tl.float32)
        back = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - (tl.sum(value, axis=1) / CHANNELS)[:, None], 0.0)
        narrowness = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / CHANNELS + eps)
        normal = centred * narrowness[:, None]
        of_weight += back * normal
        of_bias += back
        weighted = back * scale[None, :]
        along = (tl.sum(weighted * normal, axis=1) / CHANNELS)[:, None]
        own = weighted - (tl.sum(weighted, axis=1) / CHANNELS)[:, None] - normal * along
        tl.store(result + places, (own * narrowness[:, None]).to(result.dtype.element_ty), mask=inside)
    place = (lane * pieces + piece) * CHANNELS + channel
    tl.store(sums + place, tl.sum(of_weight, axis=0), mask=known)
    tl.store(sums + lanes.to(tl.int64) * pieces * CHANNELS + place, tl.sum(of_bias, axis=0), mask=known)
