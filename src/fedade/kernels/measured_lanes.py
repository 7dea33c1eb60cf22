"""Convolutions of many clients that leave moments, without gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.folding_lanes import LayerParameters, folded
from fedade.kernels.lanes import (
    CHANNEL_MULTIPLE,
    Dims,
    LayerChain,
    Plan,
    as_lanes,
    dense_lanes,
    mapped_again,
    padded,
)
from fedade.kernels.launch import image_of
from fedade.kernels.layer import Layer
from fedade.kernels.measured_products import leaves_moments
from fedade.kernels.reference import dense_weights


def measured_layer(
    layer: Layer, image: Tensor, weight: Tensor, bias: Tensor | None, precision: str, ready: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """A convolution of one client without gradients, and mean and mean square of its samples' channels, `[2, n,
    outputs]`; None where the product cannot leave these. `ready` is what `ready_weights` has made of its weights."""
    pixels = padded(image.permute(0, 2, 3, 1), -image.shape[1] % CHANNEL_MULTIPLE)
    dense = weight if layer.dense else dense_weights(weight, layer)
    if not leaves_moments(image_of(pixels), len(dense), dense.shape[-1], layer.stride, pixels.element_size()):
        return None
    plan = Plan((layer,), 1, precision, kept=False, eps=(0.0,), packed=ready is not None, measured=True)
    parameters = (None if value is None else value.float()[None] for value in (dense, bias))
    copies = () if ready is None else (ready[None],)
    result, moments = LayerChain.apply(plan, pixels[None], *parameters, None, None, None, None, *copies)
    return result.squeeze(0).permute(0, 3, 1, 2), moments.squeeze(0).transpose(0, 1)


def ready_weights(layers: Sequence[Layer], weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights of convolutions without gradients as products read them, `[outputs, kernel, kernel, channels]`, for
    `measured_layer`."""
    pairs = zip(layers, weights, strict=True)
    dense = [weight if layer.dense else dense_weights(weight, layer) for layer, weight in pairs]
    found: tuple[Tensor, ...] = ReadyWeights.apply(dtype, *(weight.detach().float()[None] for weight in dense))
    return [weight.squeeze(0) for weight in found]


class ReadyWeights(Function):
    """Weights `[lanes, ...]` in, what products read of them out."""

    @staticmethod
    def forward(dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """Fold with nothing: another order and precision, and channels of zeros."""
        own = [LayerParameters(dense_lanes(weight), None, None, None, None, None) for weight in weights]
        channels = [weight.shape[2] + -weight.shape[2] % CHANNEL_MULTIPLE for weight in weights]
        return tuple(both.weights for both in folded(own, [0.0] * len(own), channels, dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, dtype: torch.dtype, *weights: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes; what they share is folded once."""
        lanes = as_lanes(info.batch_size, in_dims[1:], weights)
        return mapped_again(info.batch_size, ReadyWeights.apply(dtype, *lanes))
