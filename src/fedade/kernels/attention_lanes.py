# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""Attention among few tokens as an operation that `vmap` turns into one longer batch: one kernel there and one back.

A program sees to one head of one sample. It reads queries, keys and values where a product has left them, and makes the
softmax anew where gradients need it.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room
from fedade.kernels.heads import HeadPlaces, Heads
from fedade.kernels.lanes import Dims, LaneGradient
from fedade.kernels.launch import GRADIENT_PRECISION
from fedade.kernels.tilings import power_of_two

TOKENS_PER_WARP = 16


def attention(heads: Heads, sources: list[Tensor], precision: str) -> Tensor:
    """Of one client's sources, `[samples, ...]`: `[samples, heads, tokens, channels]`, in memory by token."""
    result: Tensor = Attention.apply(heads, precision, *sources)
    return result.transpose(1, 2)


class Attention(Function):
    """Sources `[samples, ...]` in, `[samples, tokens, heads, channels]` out."""

    @staticmethod
    def forward(heads: Heads, precision: str, *sources: Tensor) -> Tensor:
        """Run the kernel."""
        dense = [source.contiguous() for source in sources]
        samples = len(dense[0])
        result = room(dense[0], (samples, heads.tokens, heads.heads, heads.channels))
        given = [dense[places.source] for places in heads.places]
        launch(_attend, heads.heads, samples)(*given, result, heads.scale, **_constants(heads, precision))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the gradients need."""
        ctx.heads, ctx.precision, *sources = inputs
        ctx.save_for_backward(*sources)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the sources."""
        return None, None, *AttentionGradient.apply(ctx.heads, ctx.precision, gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, heads: Heads, precision: str, *sources: Tensor) -> tuple[Tensor, int]:
        """Samples of all clients are one batch."""
        joined = _one_batch(info.batch_size, in_dims[2:], sources)
        result: Tensor = Attention.apply(heads, precision, *joined)
        return result.unflatten(0, (info.batch_size, -1)), 0


class AttentionGradient(LaneGradient):
    """The gradient of `Attention`."""

    @staticmethod
    def forward(heads: Heads, precision: str, gradient: Tensor, *sources: Tensor) -> tuple[Tensor, ...]:
        """One gradient per source."""
        dense = [source.contiguous() for source in sources]
        results = [room(source, source.shape) for source in dense]
        given, found = ([tensors[places.source] for places in heads.places] for tensors in (dense, results))
        launch(_attend_back, heads.heads, len(gradient))(
            *given, gradient.contiguous(), *found, heads.scale, **_constants(heads, precision)
        )
        return tuple(results)

    @staticmethod
    def vmap(
        info: Any, in_dims: Dims, heads: Heads, precision: str, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], Dims]:
        """Samples of all clients are one batch."""
        joined = _one_batch(info.batch_size, in_dims[2:], tensors)
        results = AttentionGradient.apply(heads, precision, *joined)
        return tuple(result.unflatten(0, (info.batch_size, -1)) for result in results), (0,) * len(results)


def _one_batch(batch: int, dims: Dims, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    moved = [
        tensor.expand(batch, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    return [tensor.flatten(0, 1) for tensor in moved]


def _constants(heads: Heads, precision: str) -> dict[str, Any]:
    def of(places: HeadPlaces) -> tuple[int, ...]:
        return places.size, places.first, places.head, places.token, places.channel

    block = power_of_two(heads.tokens)
    return {
        "QUERIES": of(heads.queries),
        "KEYS": of(heads.keys),
        "VALUES": of(heads.values),
        "HEADS": heads.heads,
        "TOKENS": heads.tokens,
        "CHANNELS": heads.channels,
        "PRECISION": GRADIENT_PRECISION[precision],
        "BLOCK": block,
        "BREADTH": power_of_two(heads.channels),
        "num_warps": max(1, block // TOKENS_PER_WARP),
    }


@triton.jit
def _at(sample, head, token, channel, PLACES: tl.constexpr):
    first = sample * PLACES[0] + PLACES[1] + head * PLACES[2]
    return first + token[:, None] * PLACES[3] + channel[None, :] * PLACES[4]


@triton.jit
def _weights(query, key, scale, known, PRECISION: tl.constexpr):
    """The softmax, in float32."""
    score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    score = tl.where(known[None, :], score, float("-inf"))
    power = tl.exp(score - tl.max(score, axis=1)[:, None])
    return power / tl.sum(power, axis=1)[:, None]


@triton.jit
def _attend(
    queries, keys, values, result, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, HEADS: tl.constexpr, TOKENS: tl.constexpr,
    CHANNELS: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr, BREADTH: tl.constexpr,
):  # fmt: skip
    head, sample = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    token, channel = tl.arange(0, BLOCK), tl.arange(0, BREADTH)
    known = token < TOKENS
    inside = known[:, None] & (channel < CHANNELS)[None, :]
    query = tl.load(queries + _at(sample, head, token, channel, QUERIES), mask=inside, other=0.0)
    key = tl.load(keys + _at(sample, head, token, channel, KEYS), mask=inside, other=0.0)
    value = tl.load(values + _at(sample, head, token, channel, VALUES), mask=inside, other=0.0)
    weight = _weights(query, key, scale, known, PRECISION).to(value.dtype)
    mixed = tl.dot(weight, value, input_precision=PRECISION)
    place = ((sample * TOKENS + token[:, None]) * HEADS + head) * CHANNELS + channel[None, :]
    tl.store(result + place, mixed.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _attend_back(
    queries, keys, values, gradient, of_queries, of_keys, of_values, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, HEADS: tl.constexpr, TOKENS: tl.constexpr,
    CHANNELS: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr, BREADTH: tl.constexpr,
):  # fmt: skip
    head, sample = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    token, channel = tl.arange(0, BLOCK), tl.arange(0, BREADTH)
    known = token < TOKENS
    inside = known[:, None] & (channel < CHANNELS)[None, :]
    at_query = _at(sample, head, token, channel, QUERIES)
    at_key = _at(sample, head, token, channel, KEYS)
    at_value = _at(sample, head, token, channel, VALUES)
    query = tl.load(queries + at_query, mask=inside, other=0.0)
    key = tl.load(keys + at_key, mask=inside, other=0.0)
    value = tl.load(values + at_value, mask=inside, other=0.0)
    place = ((sample * TOKENS + token[:, None]) * HEADS + head) * CHANNELS + channel[None, :]
    back = tl.load(gradient + place, mask=inside, other=0.0)
    weight = _weights(query, key, scale, known, PRECISION)
    own = tl.dot(tl.trans(weight.to(back.dtype)), back, input_precision=PRECISION)
    tl.store(of_values + at_value, own.to(of_values.dtype.element_ty), mask=inside)
    of_weight = tl.dot(back, tl.trans(value), input_precision=PRECISION)
    of_score = weight * (of_weight - tl.sum(of_weight * weight, axis=1)[:, None]) * scale
    of_score = of_score.to(query.dtype)
    own = tl.dot(of_score, key, input_precision=PRECISION)
    tl.store(of_queries + at_query, own.to(of_queries.dtype.element_ty), mask=inside)
    own = tl.dot(tl.trans(of_score), query, input_precision=PRECISION)
    tl.store(of_keys + at_key, own.to(of_keys.dtype.element_ty), mask=inside)
