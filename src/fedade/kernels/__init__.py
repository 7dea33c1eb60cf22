"""Convolutions of many clients at once: fused kernels for GPUs, and what they compute in plain PyTorch."""

import importlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedade.kernels import reference
from fedade.kernels.layer import Chain, Layer, joined, residual_block
from fedade.kernels.native import chain

__all__ = ["Chain", "Layer", "fused_convolution", "fused_layers", "joined", "residual_block", "supported"]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def fused_convolution(
    images: Tensor,
    weights: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    stride: int = 1,
    relu: bool = True,
    tf32: bool = False,
) -> Tensor:
    """relu(conv(images) + bias + residual) of one client, the relu if asked for.

    Images `[samples, channels, height, width]` lie in channels-last memory, or are brought there; weights `[outputs,
    channels, kernel, kernel]` may be float32 beside images of lower precision. Padding keeps the size, up to the
    stride.
    """
    inputs = [images] if residual is None else [images, residual]
    layer = Layer(0, stride, residual=None if residual is None else 1, relu=relu)
    return fused_layers([layer], inputs, [weights], [bias], tf32=tf32)


def fused_layers(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    pooled: bool = False,
    tf32: bool = False,
) -> Tensor:
    """The output of the last of several layers of one client; `vmap` over clients and `grad` work on it.

    If `pooled`, it is the mean of that output over the image plane, `[samples, channels]` in float32.

    Layers of one call share kernels in the backward pass, so a whole network is faster than its layers one by one.
    Products of float32 are exact to float32 unless `tf32`. The same input gives the same bits.
    """
    if chain.suits(layers, inputs, weights):
        output = chain.fused_layers(layers, inputs, weights, biases)
        return output.mean((2, 3)) if pooled else output
    if not supported(inputs[0]):
        return reference.fused_layers(layers, inputs, weights, biases, pooled)
    result: Tensor = _lanes().fused_layers(layers, inputs, weights, biases, pooled, "tf32" if tf32 else "float32")
    return result


def supported(tensor: Tensor) -> bool:
    """Can the kernels work on such a tensor? They need a CUDA device and Triton."""
    return tensor.is_cuda and tensor.dtype in DTYPES and importlib.util.find_spec("triton") is not None


@cache
def _lanes() -> Any:
    # Triton is no dependency of this package: it comes with PyTorch for GPUs, and is imported when it is used.
    return importlib.import_module("fedade.kernels.lanes")
