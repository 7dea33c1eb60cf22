"""Chains of convolutions on one CPU core, with their gradients, for autograd and `torch.func.grad`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.func import vjp

from fedade.kernels import reference
from fedade.kernels.layer import Layer
from fedade.kernels.mapping import mapped
from fedade.kernels.native.calls import CHANNELS, LANES, Gradient, by_pixel, convolved, image_gradient, weight_gradient
from fedade.kernels.native.library import native


def suits(layers: Sequence[Layer], inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether compiled convolutions gain something in this chain: float32 on a CPU, one client at a time."""
    return (
        len(inputs) == 1
        and all(layer.dense and not layer.gelu for layer in layers)
        and all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in (*inputs, *weights))
        and all(weight.shape[-1] % 2 == 1 for weight in weights)
        and any(weight.shape[-1] == 3 and not any(size % CHANNELS for size in weight.shape[:2]) for weight in weights)
        and all(layer.source > 0 for layer in layers[1:])
        and not mapped()
        and native() is not None
    )


def suits_images(images: Tensor) -> bool:
    """Whether moments and scaling of these images can be compiled: one client's at a time, without a gradient."""
    return (
        images.ndim == 4
        and images.device.type == "cpu"
        and images.dtype == torch.float32
        and images.shape[1] % LANES == 0
        and not torch.is_grad_enabled()
        and not mapped()
        and native() is not None
    )


def fused_layers(
    layers: Sequence[Layer], inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """The output of the last of several layers of one client."""
    outputs: tuple[Tensor, ...] = _Chain.apply(tuple(layers), inputs[0], *weights, *biases)  # type: ignore[no-untyped-call]
    return outputs[-1]


class _Chain(Function):
    """All layers' outputs, of which only the last one has gradients; the others are kept for them."""

    @staticmethod
    def forward(layers: tuple[Layer, ...], images: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[: len(layers)], parameters[len(layers) :]
        tensors = [by_pixel(images)]
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            residual = None if layer.residual is None else tensors[layer.residual]
            tensors.append(convolved(tensors[layer.source], weight, bias, residual, layer.stride, layer.relu))
        return tuple(tensors[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.layers, images, *parameters = inputs
        ctx.mark_non_differentiable(*output[:-1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(images, *output, *parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        results = _Gradients.apply(ctx.layers, ctx.needs_input_grad[1], gradients[-1], *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return None, *results


class _Gradients(Function):
    """Apart from the chain, because the tensors that `backward` is given under `torch.func` have no memory."""

    @staticmethod
    def forward(
        layers: tuple[Layer, ...], of_images: bool, gradient: Tensor, *saved: Tensor
    ) -> tuple[Tensor | None, ...]:
        count = len(layers)
        tensors, weights = [by_pixel(saved[0]), *saved[1 : count + 1]], saved[count + 1 : 2 * count + 1]
        flowing: list[Gradient | None] = [None] * len(layers) + [Gradient(by_pixel(gradient))]
        for_weights: list[Tensor] = []
        for_biases: list[Tensor] = []
        for place in reversed(range(len(layers))):
            layer, weight, arrived = layers[place], weights[place], flowing[place + 1]
            if arrived is None:
                raise ValueError(f"layer {place} of {len(layers)} leads nowhere; leave it out")
            through = Gradient(arrived.settled(), tensors[place + 1]) if layer.relu else arrived
            flowing[place + 1] = None
            if layer.residual is not None:
                flowing[layer.residual] = _sum(flowing[layer.residual], through)
            source = tensors[layer.source]
            for_weight, for_bias = weight_gradient(through, source, weight, layer.stride)
            for_weights.append(for_weight)
            for_biases.append(for_bias)
            if layer.source > 0 or of_images:
                before = flowing[layer.source]
                flowing[layer.source] = Gradient(image_gradient(through, source, weight, layer.stride, before))
        for_images = flowing[0]
        return None if for_images is None else for_images.settled(), *for_weights[::-1], *for_biases[::-1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.layers, _, gradient, images, *others = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, images, *others[len(ctx.layers) :])

    @staticmethod
    def backward(ctx: Any, *flowing: Tensor | None) -> tuple[Tensor | None, ...]:
        """Second derivatives are PyTorch's own, of the whole chain: only studies of the theory ask for them."""
        layers, (gradient, *given) = ctx.layers, ctx.saved_tensors
        asked = [place for place, value in enumerate(flowing) if value is not None]

        def gradients(gradient: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            found = vjp(lambda *tensors: _plain(layers, *tensors), *given)[1](gradient)
            return tuple(found[place] for place in asked)

        pulled_back = vjp(gradients, gradient, *given)[1]
        for_gradient, for_images, *for_parameters = pulled_back(tuple(flowing[place] for place in asked))
        return None, None, for_gradient, for_images, *[None] * len(layers), *for_parameters


def _plain(layers: Sequence[Layer], images: Tensor, *parameters: Tensor) -> Tensor:
    """The chain in plain PyTorch."""
    return reference.fused_layers(layers, [images], parameters[: len(layers)], parameters[len(layers) :])


def _sum(first: Gradient | None, second: Gradient) -> Gradient:
    return second if first is None else Gradient(first.settled() + second.settled())
