"""Folding as a differentiable operation that `vmap` turns into lanes of one kernel.

Everything here has a lane axis in front; a tensor with one lane is shared by all. Folded weights lie in memory as the
convolutions want them, `[lanes, outputs, kernel, kernel, channels]`.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import (
    Dims,
    LaneGradient,
    as_lanes,
    dense_lanes,
    lane_strides,
    mapped_again,
    summed_if_shared,
)

BLOCK = 1024


def folded(
    weights: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Weights `[outputs, channels, kernel, kernel]` and bias of one client."""
    tensors = (value[None] for value in (weights, scale, shift, mean, variance))
    both: tuple[Tensor, Tensor] = Fold.apply(eps, *tensors)
    return both[0].squeeze(0), both[1].squeeze(0)  # an index would be zeros and a copy on the way back


class Fold(Function):
    """w' = w γ / √(σ² + eps), b' = β - μ γ / √(σ² + eps)."""

    @staticmethod
    def forward(
        eps: float, weights: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the kernel."""
        lanes = max(len(value) for value in (weights, scale, shift, mean, variance))
        outputs, channels, kernel = weights.shape[1:4]
        parts = [dense_lanes(value) for value in (weights, scale, shift, mean, variance)]
        result = room(weights, (lanes, outputs, kernel, kernel, channels))
        bias = room(weights, (lanes, outputs))
        launch(fold_kernel, outputs, lanes)(
            *parts, result, bias, eps, *lane_strides(parts), outputs, channels, kernel * kernel, BLOCK
        )
        return result.permute(0, 1, 4, 2, 3), bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the inputs."""
        ctx.eps, *tensors = inputs
        ctx.lanes = [len(tensor) for tensor in tensors]
        ctx.save_for_backward(tensors[0], tensors[1], tensors[3], tensors[4])

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor, of_bias: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of weights, scale and shift; and of statistics, for those who learn them."""
        of_own, of_scale = FoldGradient.apply(ctx.eps, of_weights, of_bias, *ctx.saved_tensors)
        of_mean, of_variance = None, None
        if any(ctx.needs_input_grad[4:]):
            _, scale, _, variance = ctx.saved_tensors
            width = variance + ctx.eps
            of_mean, of_variance = -of_bias * scale * width.rsqrt(), -0.5 * of_scale * scale / width
        own = (
            None if gradient is None else summed_if_shared(gradient, lanes)
            for gradient, lanes in zip((of_own, of_scale, of_bias, of_mean, of_variance), ctx.lanes, strict=True)
        )
        return None, *own

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = Fold.apply(eps, *as_lanes(info.batch_size, in_dims[1:], tensors))
        return mapped_again(info.batch_size, results)


class FoldGradient(LaneGradient):
    """The gradient of `Fold`."""

    @staticmethod
    def forward(
        eps: float, of_weights: Tensor, of_bias: Tensor, weights: Tensor, scale: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of weights and scale, with all lanes."""
        lanes = max(len(value) for value in (of_weights, of_bias, weights, scale))
        outputs, channels, kernel = weights.shape[1:4]
        parts = [
            dense_lanes(of_weights.permute(0, 1, 3, 4, 2)),
            *(dense_lanes(value) for value in (of_bias, weights, scale, mean, variance)),
        ]
        own = room(weights, (lanes, outputs, channels, kernel, kernel))
        of_scale = room(weights, (lanes, outputs))
        launch(unfold_kernel, outputs, lanes)(
            *parts, own, of_scale, eps, *lane_strides(parts), outputs, channels, kernel * kernel, BLOCK
        )
        return own, of_scale

    @staticmethod
    def vmap(info: Any, in_dims: Dims, eps: float, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = FoldGradient.apply(eps, *as_lanes(info.batch_size, in_dims[1:], tensors))
        return mapped_again(info.batch_size, results)


@triton.jit
def fold_kernel(
    weights, scale, shift, mean, variance, result, bias, eps,
    weights_lane, scale_lane, shift_lane, mean_lane, variance_lane,
    outputs, channels, taps, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One program per output channel and lane."""
    output, lane = tl.program_id(0) % outputs, (tl.program_id(0) // outputs).to(tl.int64)
    width = tl.load(variance + lane * variance_lane + output) + eps
    factor = tl.load(scale + lane * scale_lane + output) / tl.sqrt(width)
    summand = tl.load(shift + lane * shift_lane + output) - tl.load(mean + lane * mean_lane + output) * factor
    tl.store(bias + lane * outputs + output, summand)
    size = channels * taps
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < size
        source = (place % channels) * taps + place // channels
        value = tl.load(weights + lane * weights_lane + output * size + source, mask=inside)
        tl.store(result + (lane * outputs + output) * size + place, value * factor, mask=inside)


@triton.jit
def unfold_kernel(
    of_weights, of_bias, weights, scale, mean, variance, own, of_scale, eps,
    of_weights_lane, of_bias_lane, weights_lane, scale_lane, mean_lane, variance_lane,
    outputs, channels, taps, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One program per output channel and lane."""
    output, lane = tl.program_id(0) % outputs, (tl.program_id(0) // outputs).to(tl.int64)
    narrowness = 1 / tl.sqrt(tl.load(variance + lane * variance_lane + output) + eps)
    factor = tl.load(scale + lane * scale_lane + output) * narrowness
    size = channels * taps
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < size
        packed = (place % taps) * channels + place // taps
        gradient = tl.load(of_weights + lane * of_weights_lane + output * size + packed, mask=inside, other=0.0)
        value = tl.load(weights + lane * weights_lane + output * size + place, mask=inside, other=0.0)
        tl.store(own + (lane * outputs + output) * size + place, gradient * factor, mask=inside)
        total += gradient * value
    back = tl.load(of_bias + lane * of_bias_lane + output)
    of_factor = tl.sum(total, axis=0) - tl.load(mean + lane * mean_lane + output) * back
    tl.store(of_scale + lane * outputs + output, of_factor * narrowness)
