"""Chains of fused convolutions as differentiable operations that `vmap` turns into lanes of one kernel.

Everything here has a lane axis in front: images `[lanes, samples, height, width, channels]`, weights `[lanes,
outputs, channels, kernel, kernel]`, what outputs have `[lanes, outputs]`. A tensor with one lane is shared by all.
`vmap` over clients makes lanes of them; where the weights are not mapped, it makes one longer batch instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.backward import layer_gradients
from fedade.kernels.folding_lanes import LayerParameters, folded, unfolded
from fedade.kernels.launch import Epilogue, convolve
from fedade.kernels.layer import Layer
from fedade.kernels.reference import Affine, dense_weights

Dims: TypeAlias = tuple[int | None, ...]

CHANNEL_MULTIPLE = 4
"""Inputs are given as many channels, so that their windows can be read in pieces of several numbers."""


@dataclass(frozen=True)
class Plan:
    """The structure of a chain: its layers, how many inputs it has, the precision of its products, and whether layers'
    outputs are kept for gradients; and what normalisations after the layers add to variances."""

    layers: tuple[Layer, ...]
    inputs: int
    precision: str
    kept: bool
    eps: tuple[float, ...]

    def __post_init__(self) -> None:
        used = {tensor for layer in self.layers for tensor in (layer.source, layer.residual)}
        for index in range(len(self.layers) - 1):
            if self.inputs + index not in used:
                raise ValueError(f"layer {index} of {len(self.layers)} is used by no later layer; leave it out")

    def unused_after(self, index: int) -> list[int]:
        """Tensors that no layer after this one reads, though one did so far."""
        read, later = (
            {tensor for layer in layers for tensor in (layer.source, layer.residual) if tensor is not None}
            for layers in (self.layers[: index + 1], self.layers[index + 1 :])
        )
        return sorted(read - later)

    def parts(self, values: Sequence[Any]) -> tuple[Sequence[Any], list[LayerParameters]]:
        """Those of the inputs, and those of the layers' parameters."""
        own = values[self.inputs :]
        size = len(LayerParameters._fields)
        return values[: self.inputs], [LayerParameters(*own[at : at + size]) for at in range(0, len(own), size)]


def fused_layers(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    precision: str,
    affines: Sequence[Affine | None] | None = None,
) -> Tensor:
    """What the last layer gives for one client and images `[samples, channels, height, width]`."""
    padding = [-image.shape[1] % CHANNEL_MULTIPLE for image in inputs]
    images = [_padded(image.permute(0, 2, 3, 1), pad)[None] for image, pad in zip(inputs, padding, strict=True)]
    dense = [
        weight if layer.dense else dense_weights(weight, layer) for layer, weight in zip(layers, weights, strict=True)
    ]
    norms = [affine or (None, None, None, None, 0.0) for affine in affines or [None] * len(layers)]
    own = [(weight, bias, *norm[:4]) for weight, bias, norm in zip(dense, biases, norms, strict=True)]
    eps = tuple(norm[4] for norm in norms)
    plan = Plan(tuple(layers), len(inputs), precision, kept=torch.is_grad_enabled(), eps=eps)
    parameters = (None if value is None else value.float()[None] for of_layer in own for value in of_layer)
    results: tuple[Tensor, ...] = LayerChain.apply(plan, *images, *parameters)
    return results[0].squeeze(0).permute(0, 3, 1, 2)


class LayerChain(Function):
    """Inputs and parameters in; the result, then what gradients need: layers' outputs and packed weights."""

    @staticmethod
    def forward(plan: Plan, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the layers."""
        inputs, parameters = plan.parts(tensors)
        images: list[Any] = [image.contiguous() for image in inputs]
        channels = [
            images[layer.source].shape[-1] if layer.source < plan.inputs else own.weights.shape[2]
            for layer, own in zip(plan.layers, parameters, strict=True)
        ]
        packed = folded(_dense(parameters), plan.eps, channels, images[0].dtype)
        for index, (layer, (weight, bias)) in enumerate(zip(plan.layers, packed, strict=True)):
            residual = None if layer.residual is None else images[layer.residual]
            epilogue = Epilogue(bias, residual, rectified=layer.relu)
            images.append(convolve(images[layer.source], weight, layer.stride, epilogue, plan.precision))
            for unused in () if plan.kept else plan.unused_after(index):
                images[unused] = None
        *outputs, result = images[plan.inputs :]
        return (result, *outputs, *(weight for weight, _ in packed)) if plan.kept else (result,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the gradients need."""
        plan, *tensors = inputs
        if not plan.kept:
            return
        result, *others = output
        outputs, packed = others[: -len(plan.layers)], others[-len(plan.layers) :]
        ctx.plan = plan
        ctx.kinds = [None if tensor is None else (len(tensor), tensor.dtype) for tensor in tensors]
        ctx.mark_non_differentiable(*others)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outputs, result, *packed, *tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the tensors that need one."""
        needed = ctx.needs_input_grad[1:]
        results = iter(LayerChainGradient.apply(ctx.plan, needed, gradients[0], *ctx.saved_tensors))
        return None, *(
            summed_if_shared(next(results), kind[0]).to(kind[1]) if need else None
            for need, kind in zip(needed, ctx.kinds, strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: Dims, plan: Plan, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Mapped weights make lanes; otherwise samples of all clients make one batch."""
        dims = in_dims[1:]
        inputs, batch = plan.inputs, info.batch_size
        if any(dim is not None for dim in dims[inputs:]):
            return mapped_again(batch, LayerChain.apply(plan, *as_lanes(batch, dims, tensors)))
        images = [_samples(tensor, dim, batch) for tensor, dim in zip(tensors, dims[:inputs], strict=False)]
        results = LayerChain.apply(plan, *images, *tensors[inputs:])
        images, packed = (results[: -len(plan.layers)], results[-len(plan.layers) :]) if plan.kept else (results, ())
        outputs = tuple(image.reshape(len(image), batch, -1, *image.shape[2:]) for image in images)
        return (*outputs, *packed), (1,) * len(outputs) + (None,) * len(packed)


class LaneGradient(Function):
    """A gradient as an operation of its own, so that `vmap` reaches its kernels too; it has no gradient itself."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor | None) -> None:
        """Second derivatives are not provided."""
        raise NotImplementedError("fused convolutions have no second derivative; use fedade.kernels.reference")


class LayerChainGradient(LaneGradient):
    """The gradient of `LayerChain`."""

    @staticmethod
    def forward(plan: Plan, needed: tuple[bool, ...], gradient: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
        """One gradient per tensor that needs one, each with all lanes."""
        count = len(plan.layers)
        outputs, packed, (inputs, parameters) = saved[:count], saved[count : 2 * count], plan.parts(saved[2 * count :])
        images = [image.contiguous() for image in (*inputs, *outputs)]
        of_inputs, of_layers = plan.parts(needed)
        wanted = of_inputs, [any(own) for own in of_layers]
        results, pieces = layer_gradients(plan.layers, wanted, images, packed, gradient, plan.precision)
        moving = [index for index, piece in enumerate(pieces) if piece is not None]
        dense = _dense([parameters[index] for index in moving])
        eps = [plan.eps[index] for index in moving]
        unpacked = unfolded(dense, eps, [piece for piece in pieces if piece is not None])
        for index, own, small, found in zip(moving, dense, eps, unpacked, strict=True):
            names = (name for name, need in zip(own._fields, of_layers[index], strict=True) if need)
            results += [found.of(name, own, small) for name in names]
        return tuple(result for result in results if result is not None)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, plan: Plan, needed: tuple[bool, ...], *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        results = LayerChainGradient.apply(plan, needed, *as_lanes(info.batch_size, in_dims[2:], tensors))
        return mapped_again(info.batch_size, results)


def _padded(tensor: Tensor, padding: int) -> Tensor:
    """With so many more channels of zeros."""
    return F.pad(tensor, (0, padding)) if padding else tensor


def _dense(parameters: Sequence[LayerParameters]) -> list[LayerParameters]:
    return [
        LayerParameters(*(value if value is None else dense_lanes(value) for value in own))  # type: ignore[arg-type]
        for own in parameters
    ]


def dense_lanes(lanes: Tensor) -> Tensor:
    """Lanes without gaps within; between them there may be some, as where each is a part of a client's vector."""
    return lanes if lanes[0].is_contiguous() else lanes.contiguous()


def lane_strides(tensors: Sequence[Tensor | None]) -> list[int]:
    """From one lane of each to the next; nothing where all share one, or there is none."""
    return [0 if tensor is None or len(tensor) == 1 else tensor.stride(0) for tensor in tensors]


def as_lanes(batch: int, dims: Dims, tensors: Sequence[Any]) -> list[Any]:
    """Make the mapped axis part of the lane axis; a lane that all share stays one, and None stays None."""
    moved = [tensor if dim is None else tensor.movedim(dim, 0) for tensor, dim in zip(tensors, dims, strict=True)]
    axes = [0 if dim is None else 1 for dim in dims]
    lanes = max(tensor.shape[axis] for tensor, axis in zip(moved, axes, strict=True) if tensor is not None)
    return [
        tensor
        if tensor is None or (axis == 0 and len(tensor) == 1)
        else tensor.expand(batch, lanes, *tensor.shape[1 + axis :]).reshape(batch * lanes, *tensor.shape[1 + axis :])
        for tensor, axis in zip(moved, axes, strict=True)
    ]


def mapped_again(batch: int, results: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Dims]:
    """Take the mapped axis out of the lane axis again."""
    lanes = max(len(result) for result in results)
    outputs = tuple(
        result.reshape(batch, -1, *result.shape[1:]) if len(result) == lanes else result for result in results
    )
    return outputs, tuple(0 if len(result) == lanes else None for result in results)


def _samples(images: Tensor, dim: int | None, batch: int) -> Tensor:
    """Make the mapped axis part of the samples."""
    lane_first = images[:, None].expand(-1, batch, *images.shape[1:]) if dim is None else images.movedim(dim, 1)
    return lane_first.flatten(1, 2)


def summed_if_shared(gradient: Tensor, lanes: int) -> Tensor:
    """The gradient of a tensor that all lanes share is the sum of theirs."""
    return gradient if len(gradient) == lanes else gradient.sum(0, keepdim=True)
