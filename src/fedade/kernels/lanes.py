"""Chains of fused convolutions as differentiable operations that `vmap` turns into lanes of one kernel.

Everything here has a lane axis in front: images `[lanes, samples, height, width, channels]`, weights `[lanes,
outputs, kernel, kernel, channels]`, biases `[lanes, outputs]`. A tensor with one lane is shared by all. `vmap` over
clients makes lanes of them; where the weights are not mapped, it makes one longer batch instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.backward import layer_gradients
from fedade.kernels.launch import Epilogue, convolve
from fedade.kernels.layer import Layer
from fedade.kernels.reference import dense_weights
from fedade.kernels.second_stream import SecondStream

Dims: TypeAlias = tuple[int | None, ...]

CHANNEL_MULTIPLE = 4
"""Inputs are given as many channels, so that their windows can be read in pieces of several numbers."""


@dataclass(frozen=True)
class Plan:
    """The structure of a chain: its layers, how many inputs it has, the precision of its products, and whether layers'
    outputs are kept for gradients."""

    layers: tuple[Layer, ...]
    inputs: int
    precision: str
    kept: bool

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

    def parts(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Inputs, one per layer, another one per layer."""
        middle = self.inputs + len(self.layers)
        return tensors[: self.inputs], tensors[self.inputs : middle], tensors[middle:]


def fused_layers(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    precision: str,
) -> Tensor:
    """What the last layer gives for one client and images `[samples, channels, height, width]`."""
    padding = [-image.shape[1] % CHANNEL_MULTIPLE for image in inputs]
    images = [_padded(image.permute(0, 2, 3, 1), pad)[None] for image, pad in zip(inputs, padding, strict=True)]
    after = [padding[layer.source] if layer.source < len(inputs) else 0 for layer in layers]
    dense = [
        weight if layer.dense else dense_weights(weight, layer) for layer, weight in zip(layers, weights, strict=True)
    ]
    kernels = [_padded(weight.permute(0, 2, 3, 1), pad)[None] for weight, pad in zip(dense, after, strict=True)]
    plan = Plan(tuple(layers), len(inputs), precision, kept=torch.is_grad_enabled())
    offsets = [None if bias is None else bias[None] for bias in biases]
    results: tuple[Tensor, ...] = LayerChain.apply(plan, *images, *kernels, *offsets)
    return results[0].squeeze(0).permute(0, 3, 1, 2)


class LayerChain(Function):
    """Inputs, weights and biases in; the result, then what gradients need: layers' outputs and packed weights."""

    @staticmethod
    def forward(plan: Plan, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the layers."""
        inputs, weights, biases = plan.parts(tensors)
        images: list[Any] = [image.contiguous() for image in inputs]
        packed = _packed(weights[:1], images[0].dtype)
        second = SecondStream(images[0].device)
        with second.reading(images[0]):
            packed += _packed(weights[1:], images[0].dtype)
        for index, (layer, weight, bias) in enumerate(zip(plan.layers, packed, biases, strict=True)):
            residual = None if layer.residual is None else images[layer.residual]
            added = None if bias is None else dense_lanes(bias.float())
            epilogue = Epilogue(added, residual, rectified=layer.relu)
            images.append(convolve(images[layer.source], weight, layer.stride, epilogue, plan.precision))
            second.join()
            for unused in () if plan.kept else plan.unused_after(index):
                images[unused] = None
        *outputs, result = images[plan.inputs :]
        return (result, *outputs, *packed) if plan.kept else (result,)

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
        ctx.save_for_backward(*tensors[: plan.inputs], *outputs, result, *packed)

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
        inputs, outputs, weights = plan.parts(saved)
        images = [image.contiguous() for image in (*inputs, *outputs)]
        results = layer_gradients(plan.layers, plan.parts(needed), images, weights, gradient, plan.precision)
        return tuple(result for part in results for result in part if result is not None)

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


def _packed(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Contiguous copies: an output of an operation must not be one of its inputs. All in as few launches as can be."""
    packed = [weight.new_empty(weight.shape, dtype=dtype) for weight in weights]
    if packed:
        torch._foreach_copy_(packed, list(weights))
    return packed


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
