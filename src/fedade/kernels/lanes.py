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
from fedade.kernels.folding_lanes import Folded, LayerParameters, folded, unfolded
from fedade.kernels.launch import Epilogue, convolve, room_of_output
from fedade.kernels.layer import Layer
from fedade.kernels.measured_products import measured_convolution
from fedade.kernels.packing import packed_copies
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
    packed: bool = False
    """Whether it is given copies of its weights, packed and in the precision of its images, behind the parameters."""
    measured: bool = False
    """Whether moments of the last layer's output are wanted, which then is a convolution and a bias alone."""

    def __post_init__(self) -> None:
        used = {tensor for layer in self.layers for tensor in (layer.source, layer.residual)}
        for index in range(len(self.layers) - 1):
            if self.inputs + index not in used:
                raise ValueError(f"layer {index} of {len(self.layers)} is used by no later layer; leave it out")

    @property
    def gelus(self) -> list[int]:
        """Numbers of the tensors that a gelu made."""
        return [self.inputs + index for index, layer in enumerate(self.layers) if layer.gelu]

    def unused_after(self, index: int) -> list[int]:
        """Tensors that no layer after this one reads, though one did so far."""
        read, later = (
            {tensor for layer in layers for tensor in (layer.source, layer.residual) if tensor is not None}
            for layers in (self.layers[: index + 1], self.layers[index + 1 :])
        )
        return sorted(read - later)

    def parts(self, values: Sequence[Any]) -> tuple[Sequence[Any], list[LayerParameters], Sequence[Any]]:
        """Those of the inputs, those of the layers' parameters, and those of packed weights that it is given."""
        size = len(LayerParameters._fields)
        end = self.inputs + size * len(self.layers)
        own = [LayerParameters(*values[at : at + size]) for at in range(self.inputs, end, size)]
        return values[: self.inputs], own, values[end:]


def fused_layers(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    precision: str,
    affines: Sequence[Affine | None] | None = None,
    packed: Sequence[Tensor] = (),
) -> Tensor:
    """What the last layer gives for one client and images `[samples, channels, height, width]`. `packed` are copies of
    the weights in the precision of the images, if somebody has made them: see `packed_weights`."""
    padding = [-image.shape[1] % CHANNEL_MULTIPLE for image in inputs]
    images = [padded(image.permute(0, 2, 3, 1), pad)[None] for image, pad in zip(inputs, padding, strict=True)]
    dense = [
        weight if layer.dense else dense_weights(weight, layer) for layer, weight in zip(layers, weights, strict=True)
    ]
    norms = [affine or (None, None, None, None, 0.0) for affine in affines or [None] * len(layers)]
    own = [(weight, bias, *norm[:4]) for weight, bias, norm in zip(dense, biases, norms, strict=True)]
    eps = tuple(norm[4] for norm in norms)
    plan = Plan(tuple(layers), len(inputs), precision, torch.is_grad_enabled(), eps, packed=bool(packed))
    parameters = (None if value is None else value.float()[None] for of_layer in own for value in of_layer)
    copies = [weight.permute(0, 2, 3, 1)[None] for weight in packed]
    results: tuple[Tensor, ...] = LayerChain.apply(plan, *images, *parameters, *copies)
    return results[0].squeeze(0).permute(0, 3, 1, 2)


def packed_weights(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights of 1x1 convolutions without gradients, for `fused_layers`; copies, where they have another precision."""
    without = [weight.detach() for weight in weights]
    if all(weight.dtype is dtype for weight in without):
        return without
    copies: tuple[Tensor, ...] = PackedWeights.apply(dtype, *(weight[None] for weight in without))
    return [copy.squeeze(0) for copy in copies]


class PackedWeights(Function):
    """Weights `[lanes, ...]` in, their copies out."""

    @staticmethod
    def forward(dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """Copy."""
        return tuple(packed_copies(weights, dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, dtype: torch.dtype, *weights: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes; what they share is copied once."""
        lanes = as_lanes(info.batch_size, in_dims[1:], weights)
        return mapped_again(info.batch_size, PackedWeights.apply(dtype, *lanes))


class LayerChain(Function):
    """Inputs and parameters in; the result, then what gradients need: layers' outputs, what gelus were given, and
    packed weights; or its moments `[lanes, samples, 2, channels]`."""

    @staticmethod
    def forward(plan: Plan, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the layers."""
        inputs, parameters, copies = plan.parts(tensors)
        images: list[Any] = [image.contiguous() for image in inputs]
        channels = [
            images[layer.source].shape[-1] if layer.source < plan.inputs else own.weights.shape[2]
            for layer, own in zip(plan.layers, parameters, strict=True)
        ]
        dense = _dense(parameters)
        if plan.packed:
            packed = [Folded(dense_lanes(copy), own.bias) for copy, own in zip(copies, dense, strict=True)]
        else:
            packed = folded(dense, plan.eps, channels, images[0].dtype)
        befores: list[Tensor] = []
        for index, (layer, (weight, bias)) in enumerate(zip(plan.layers, packed, strict=True)):
            if plan.kept and layer.gelu:
                befores.append(room_of_output(images[layer.source], weight, layer.stride))
            before = befores[-1] if plan.kept and layer.gelu else None
            residual = None if layer.residual is None else images[layer.residual]
            if plan.measured:
                output, moments = measured_convolution(images[layer.source], weight, layer.stride, bias, plan.precision)
                return output, moments.permute(1, 2, 0, 3)
            epilogue = Epilogue(bias, residual, rectified=layer.relu, gelu=layer.gelu, before=before)
            images.append(convolve(images[layer.source], weight, layer.stride, epilogue, plan.precision))
            for unused in () if plan.kept else plan.unused_after(index):
                images[unused] = None
        *outputs, result = images[plan.inputs :]
        made = () if plan.packed else (weight for weight, _ in packed)  # what was given need not be
        return (result, *outputs, *befores, *made) if plan.kept else (result,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the gradients need."""
        plan, *tensors = inputs
        if not plan.kept:
            return
        result, *others = output
        count = len(plan.layers) - 1
        ctx.plan = plan
        ctx.kinds = [None if tensor is None else (len(tensor), tensor.dtype) for tensor in tensors]
        ctx.mark_non_differentiable(*others)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*others[:count], result, *others[count:], *tensors)

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
        count = len(plan.layers) + len(plan.gelus) if plan.kept else 1 + plan.measured
        images, packed = results[:count], results[count:]
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
        before, made = count + len(plan.gelus), 0 if plan.packed else count
        inputs, parameters, copies = plan.parts(saved[before + made :])
        weights = [dense_lanes(weight) for weight in copies or saved[before : before + made]]
        images = [image.contiguous() for image in (*inputs, *saved[:count])]
        befores = {number: one.contiguous() for number, one in zip(plan.gelus, saved[count:before], strict=True)}
        of_inputs, of_layers, _ = plan.parts(needed)
        wanted = of_inputs, [any(own) for own in of_layers]
        results, pieces = layer_gradients(plan.layers, wanted, images, weights, gradient, plan.precision, befores)
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


def padded(tensor: Tensor, padding: int) -> Tensor:
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
