"""Convolutions on tensors in channels-last layout: compiled here where Winograd's transform fits, else PyTorch's own.

In PyTorch 2.13 the transform takes half the time of PyTorch's 3x3 convolutions with stride 1. For other windows and
strides nothing that was compiled here was faster (`python speed/cpu.py`).
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.profiler import record_function

from fedade.kernels.native.library import native

CHANNELS = 32
"""Compiled convolutions take channels in multiples of it."""
LANES = 16
"""Compiled moments and scalings take channels in multiples of it: what a processor's widest registers hold."""


class Gradient(NamedTuple):
    """A gradient that counts where its gate, if any, is positive: what a relu lets through."""

    values: Tensor
    gate: Tensor | None = None

    def settled(self) -> Tensor:
        """The same without a gate."""
        if self.gate is None:
            return self.values
        passed: Tensor = torch.ops.aten.threshold_backward(self.values, self.gate, 0)
        return passed


def by_pixel(images: Tensor) -> Tensor:
    """Images whose channels lie side by side."""
    return images.contiguous(memory_format=torch.channels_last)


def transforms(images: Tensor, weight: Tensor, stride: int) -> bool:
    """Whether Winograd's transform fits."""
    fits = weight.shape[-1] == 3 and stride == 1 and images.shape[-1] % 4 == 0 and images.shape[-2] % 4 == 0
    return fits and len(weight) % CHANNELS == 0 and weight.shape[1] % CHANNELS == 0


def convolved(images: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, stride: int, relu: bool) -> Tensor:
    """relu(conv(images) + bias + residual)."""
    if not transforms(images, weight, stride):
        out = by_pixel(F.conv2d(images, by_pixel(weight), bias, stride, weight.shape[-1] // 2))
        out = out if residual is None else out.add_(residual)
        return out.relu_() if relu else out
    out = torch.empty((len(images), len(weight), *images.shape[2:]), memory_format=torch.channels_last)
    taps, offset = weight.permute(2, 3, 1, 0).contiguous(), bias.contiguous()
    given = _addresses(images, taps, offset, residual)
    with record_function("fedade::convolution"):
        _functions().fedade_convolution(*given, relu, *_sizes(images, weight), *_addresses(out))
    return out


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]`."""
    count, channels, height, width = images.shape
    pixels, out = by_pixel(images), torch.empty(2, count, channels)
    with record_function("fedade::channel_moments"):
        _functions().fedade_channel_moments(*_addresses(pixels), count, height * width, channels, *_addresses(out))
    return out


def scaled(images: Tensor, scale: Tensor, shift: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(images scale + shift + residual), per channel, `[C]`, or per sample and channel, `[n, C]`."""
    pixels, added = by_pixel(images), None if residual is None else by_pixel(residual)
    factor, summand, out = scale.contiguous(), shift.contiguous(), torch.empty_like(pixels)
    given, (samples, channels, height, width) = _addresses(pixels, factor, summand, added), pixels.shape
    sizes = channels if scale.ndim > 1 else 0, samples, height * width, channels
    with record_function("fedade::scaled"):
        _functions().fedade_scaled(*given, relu, *sizes, *_addresses(out))
    return out


def image_gradient(gradient: Gradient, images: Tensor, weight: Tensor, stride: int, more: Gradient | None) -> Tensor:
    """What flows back to the images, on top of `more` that does."""
    if not transforms(images, weight, stride):
        back, _, _ = _backward(gradient, images, weight, stride, [True, False, False])
        return by_pixel(back if more is None else back.add_(more.settled()))
    turned, out = weight.flip(-1, -2).permute(2, 3, 0, 1).contiguous(), torch.empty_like(images)
    given = _addresses(*gradient, turned, *(more or (None, None)))
    with record_function("fedade::image_gradient"):
        _functions().fedade_image_gradient(*given, *_sizes(images, weight), *_addresses(out))
    return out


def weight_gradient(gradient: Gradient, images: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and of the bias."""
    if not transforms(images, weight, stride):
        return _backward(gradient, images, weight, stride, [False, True, True])[1:]
    outputs, inputs, size, _ = weight.shape
    taps, bias = torch.empty(size, size, inputs, outputs), torch.zeros(outputs)
    given, sizes = _addresses(images, *gradient), _sizes(images, weight)
    with record_function("fedade::weight_gradient"):
        _functions().fedade_weight_gradient(*given, *sizes, *_addresses(taps, bias))
    return taps.permute(3, 2, 0, 1), bias


def _backward(
    gradient: Gradient, images: Tensor, weight: Tensor, stride: int, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch's own gradients of images, weights and bias."""
    padding = weight.shape[-1] // 2
    geometry = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        gradient.settled(), images, by_pixel(weight), [len(weight)], *geometry, wanted
    )
    return found


def _sizes(images: Tensor, weight: Tensor) -> tuple[int, ...]:
    count, inputs, height, width = images.shape
    return count, height, width, inputs, len(weight)


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _functions() -> Any:
    return native()
