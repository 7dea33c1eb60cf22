"""Convolutions, normalisations and relus as one operation, where the statistics are fixed; and residual blocks of them.

With fixed statistics a normalisation layer is a scale and a shift per channel, which are folded into the weights and
the bias of the convolution before it: the product of a few weights instead of two passes over all activations. What
follows one another is gathered in a `Chain`, which a GPU runs with few kernels.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core.normalisation import Frozen, current_pass
from fedade.kernels import Affine, Layer, convolved, folded, fused_layers
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
        chain, layers = Chain(inputs), list(self)
        while layers:
            normalised = _leading_convolution(layers)
            if normalised is not None:
                chain.append(*normalised[:2], chain.last, relu=normalised[2])
                layers = layers[3 if normalised[2] else 2 :]
                continue
            layer, *layers = layers
            if isinstance(layer, BasicBlock):
                layer.join(chain, chain.last)
            elif not chain.layers:
                chain = Chain(layer(chain.images))
            elif isinstance(layer, GlobalAverage):
                chain = Chain(chain.run(pooled=True))
            else:
                chain = Chain(layer(chain.run()))
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


def _leading_convolution(layers: list[nn.Module]) -> tuple[nn.Conv2d, BatchNorm, bool] | None:
    """The convolution and normalisation that come first, if they do, and whether a relu follows them."""
    if len(layers) < 2 or not isinstance(layers[0], nn.Conv2d) or not isinstance(layers[1], BatchNorm):
        return None
    return layers[0], layers[1], len(layers) > 2 and isinstance(layers[2], nn.ReLU)


class Convolution(nn.Conv2d):
    """A convolution without bias that keeps the size, up to its stride, in the precision in force."""

    def forward(self, inputs: Tensor) -> Tensor:
        precision = current_pass().precision
        if self.training and precision != "bf16":
            return super().forward(inputs)
        images = inputs.to(torch.bfloat16) if precision == "bf16" else inputs
        return convolved(images, self.weight, self.stride[0], tf32=precision == "tf32")


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> Convolution:
    return Convolution(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm1 = BatchNorm(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = BatchNorm(outputs)
        self.shortcut: nn.Module = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else Layers(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        if statistics_are_fixed(self):
            chain = Chain(inputs)
            self.join(chain, 0)
            return chain.run()
        if self.training:
            hidden = F.relu(self.norm1(self.conv1(inputs)))
            return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))
        hidden = self.conv1(inputs)
        hidden = self.conv2(applied(hidden, self.norm1.affine(hidden), relu=True))
        # Statistics are asked for in the order in which layers are usually run: the shortcut's come last.
        return applied(hidden, self.norm2.affine(hidden), self.shortcut(inputs), relu=True)

    def join(self, chain: Chain, source: int) -> int:
        """Append its convolutions; returns the number of its output."""
        hidden = chain.append(self.conv1, self.norm1, source)
        projection = _leading_convolution(list(self.shortcut.children()))
        shortcut = source if projection is None else chain.append(*projection[:2], source, relu=False)
        return chain.append(self.conv2, self.norm2, hidden, shortcut)
