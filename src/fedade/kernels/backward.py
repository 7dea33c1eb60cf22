"""Gradients of a chain of layers, with as few passes over the images as possible.

What a relu or gelu lets through is decided where a gradient is made, in the epilogue of the product that completes it,
and gradients that meet in one tensor are added there too. Gradients of weights and biases run beside the
chain of gradients of images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.kernels.folding_lanes import PartialGradients
from fedade.kernels.launch import Epilogue, image_of, input_gradient, weight_gradient
from fedade.kernels.layer import Layer
from fedade.kernels.second_stream import SecondStream


class Arrived(NamedTuple):
    """What has come back to a tensor so far.

    With a step, the gradient has but every step-th row and column, and is zero in between. `gated`: was the relu or
    gelu that made the tensor heeded?
    """

    gradient: Tensor
    step: int = 1
    gated: bool = False


def layer_gradients(
    layers: Sequence[Layer],
    needed: tuple[Sequence[bool], Sequence[bool]],
    images: Sequence[Tensor],
    weights: Sequence[Tensor],
    gradient: Tensor,
    precision: str,
    befores: Mapping[int, Tensor],
) -> tuple[list[Tensor | None], list[PartialGradients | None]]:
    """Gradients of the inputs, and of the layers' packed weights and biases in pieces; `needed` says which of them,
    the others are None. All have every lane. `befores` are what gelus were given, by the number of the tensor that they
    made."""
    inputs = len(images) - len(layers)
    wanted = _wanted(layers, needed)
    lanes = max(len(tensor) for tensor in (*images, *weights, gradient))
    arrived: list[Arrived | None] = [None] * len(images)
    arrived[-1] = Arrived(gradient.expand(lanes, *gradient.shape[1:]))
    of_layers: list[PartialGradients | None] = [None] * len(layers)
    second = SecondStream(gradient.device)
    for index in reversed(range(len(layers))):
        layer, output, weight = layers[index], inputs + index, weights[index]
        back = arrived[output]
        if back is None:  # nothing before this layer needs a gradient
            continue
        here = _through_activation(back, images[output], layer.relu, befores.get(output))
        if needed[1][index]:
            with second.reading(here):
                kernel = weight.shape[2]
                of_layers[index] = weight_gradient(images[layer.source], here, kernel, layer.stride, precision)
        if layer.residual is not None and wanted[layer.residual]:
            before = arrived[layer.residual]
            arrived[layer.residual] = Arrived(here if before is None else _dense(before, here.shape) + here)
        if wanted[layer.source]:
            source, before = images[layer.source], arrived[layer.source]
            if before is None and weight.shape[2] == 1 and layer.stride > 1:
                image = replace(image_of(here), channels=source.shape[-1])
                sparse = input_gradient(here, weight, image, 1, Epilogue(), precision)
                arrived[layer.source] = Arrived(sparse, step=layer.stride)
                continue
            gate = befores.get(layer.source, source) if _completes(index, layers, inputs) else None
            epilogue = Epilogue(gate=gate, gelu=gate is not None and layer.source in befores)
            if before is not None:
                epilogue = replace(epilogue, residual=before.gradient, residual_step=before.step)
            result = input_gradient(here, weight, image_of(source), layer.stride, epilogue, precision)
            arrived[layer.source] = Arrived(result, gated=gate is not None)
    second.join()
    shapes = [(lanes, *image.shape[1:]) for image in images[:inputs]]
    of_inputs = [None if back is None else _dense(back, shape) for back, shape in zip(arrived, shapes, strict=False)]
    return of_inputs, of_layers


def _wanted(layers: Sequence[Layer], needed: tuple[Sequence[bool], Sequence[bool]]) -> list[bool]:
    """Per tensor: does a gradient have to come back to it?"""
    wanted = list(needed[0])
    for layer, own in zip(layers, needed[1], strict=True):
        residual = layer.residual is not None and wanted[layer.residual]
        wanted.append(own or wanted[layer.source] or residual)
    return wanted


def _completes(index: int, layers: Sequence[Layer], inputs: int) -> bool:
    """Is this layer the last one, going back, to use its source, and is there a relu or gelu to heed before it?"""
    source = layers[index].source
    used_before = any(source in (layer.source, layer.residual) for layer in layers[:index])
    active = source >= inputs and (layers[source - inputs].relu or layers[source - inputs].gelu)
    return active and not used_before


def _through_activation(back: Arrived, output: Tensor, relu: bool, before: Tensor | None) -> Tensor:
    """The gradient before the relu, or the gelu that was given `before`; contiguous."""
    gradient = _dense(back, (len(back.gradient), *output.shape[1:]))
    if back.gated or not (relu or before is not None):
        return gradient.contiguous()
    if before is not None:
        slope: Tensor = torch.ops.aten.gelu_backward(gradient.contiguous(), before.expand(gradient.shape).contiguous())
        return slope
    result = output.new_empty(gradient.shape)
    torch.ops.aten.threshold_backward.grad_input(gradient, output.expand_as(result), 0, grad_input=result)
    return result


def _dense(back: Arrived, shape: Sequence[int]) -> Tensor:
    """With the zeros in between."""
    if back.step == 1:
        return back.gradient
    result = back.gradient.new_zeros(shape)
    result[:, :, :: back.step, :: back.step] = back.gradient
    return result
