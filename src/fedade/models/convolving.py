"""Convolutions, normalisations and relus as one operation, where the statistics are fixed.

With fixed statistics a normalisation layer is a scale and a shift per channel, which are folded into the weights and
the bias of the convolution before it: the product of a few weights instead of two passes over all activations. What
follows one another is gathered in a `Chain`, which a GPU runs with few kernels.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedade.core.normalisation import Frozen, current_pass
from fedade.kernels import Affine, Layer, folded, fused_layers
from fedade.models.batch_norm import BatchNorm, applied


@dataclass
class Chain:
    """Convolutions with fixed statistics that are waiting to be run, the last one for its output."""

    images: Tensor
    """Tensor 0; the output of the n-th convolution is tensor n."""
    layers: list[Layer] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    biases: list[Tensor] = field(default_factory=list)

    @property
    def last(self) -> int:
        return len(self.layers)

    def append(
        self, convolution: nn.Conv2d, norm: BatchNorm, source: int, residual: int | None = None, relu: bool = True
    ) -> int:
        """Add relu(norm(convolution(source)) + residual); returns the number of its output."""
        affine = Affine(norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)
        weights, bias = folded(convolution.weight, affine)
        self.layers.append(Layer(source, convolution.stride[0], residual, relu))
        self.weights.append(weights)
        self.biases.append(bias)
        return self.last

    def run(self, pooled: bool = False) -> Tensor:
        """The newest tensor, computed; if `pooled`, its mean over the image plane."""
        precision = current_pass().precision
        images = self.images.to(torch.bfloat16) if precision == "bf16" else self.images
        return fused_layers(self.layers, [images], self.weights, self.biases, pooled=pooled, tf32=precision == "tf32")


@runtime_checkable
class Chainable(Protocol):
    """A module made of convolutions that can join a chain."""

    def join(self, chain: Chain, source: int) -> int:
        """Append its convolutions; returns the number of its output."""


class GlobalAverage(nn.Module):
    """Mean over the image plane: `[n, c, h, w]` to `[n, c]`."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((-2, -1), dtype=torch.float32 if inputs.dtype is torch.bfloat16 else None)


class Layers(nn.Sequential):
    """A sequence whose convolutions run as chains where they can."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            return super().forward(inputs)  # type: ignore[no-untyped-call, no-any-return]
        if not statistics_are_fixed(self):
            return _one_by_one(list(self), inputs)
        chain, place, layers = Chain(inputs), 0, list(self)
        while place < len(layers):
            layer = layers[place]
            normalised = leading_convolution(layers[place:])
            if normalised is not None:
                chain.append(*normalised[:2], chain.last, relu=normalised[2])
                place += 3 if normalised[2] else 2
                continue
            if isinstance(layer, Chainable):
                layer.join(chain, chain.last)
            elif not chain.layers:
                chain = Chain(layer(chain.images))
            elif isinstance(layer, GlobalAverage):
                chain = Chain(chain.run(pooled=True))
            else:
                chain = Chain(layer(chain.run()))
            place += 1
        return chain.run() if chain.layers else chain.images


def _one_by_one(layers: list[nn.Module], images: Tensor) -> Tensor:
    """Layers whose statistics depend on what they are shown; a relu is part of the normalisation before it."""
    while layers:
        first, *layers = layers
        if isinstance(first, BatchNorm):
            relu = bool(layers) and isinstance(layers[0], nn.ReLU)
            images, layers = applied(images, first.affine(images), relu=relu), layers[relu:]
        else:
            images = first(images)
    return images


def statistics_are_fixed(module: nn.Module) -> bool:
    """Whether normalisation is a constant scale and shift in this pass."""
    return not module.training and isinstance(current_pass().normalisation, Frozen)


def leading_convolution(layers: list[nn.Module]) -> tuple[nn.Conv2d, BatchNorm, bool] | None:
    """The convolution and normalisation that come first, if they do, and whether a relu follows them."""
    if len(layers) < 2 or not isinstance(layers[0], nn.Conv2d) or not isinstance(layers[1], BatchNorm):
        return None
    return layers[0], layers[1], len(layers) > 2 and isinstance(layers[2], nn.ReLU)
