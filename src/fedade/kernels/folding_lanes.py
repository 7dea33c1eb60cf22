"""Weights of all layers of a chain as its products read them, and gradients of all its parameters, each in one launch.

A normalisation after a convolution is part of the convolution's weights and bias: w' = w γ / √(σ² + eps) and b' = β +
(b - μ) γ / √(σ² + eps). A network's layers are small, so that a launch for each would take longer than its work. A
launch is given all of them, and a program looks up which one it is for.

Everything has a lane axis in front; a tensor with one lane is shared by all.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedade.kernels.grids import launch, room
from fedade.kernels.tilings import power_of_two

LAYERS_AT_ONCE = 22
"""What a kernel is told of them has to fit into the 4 KB that older drivers take as its arguments."""
BLOCK = 1024
"""Weights of an output that a program folds at a time."""
SHIFT = 2
"""What integers are told with on top: Triton makes a variant of a function for every argument that is 1, and networks
have layers of all kinds, so that compiling them all took the longest of all kernels."""
MOST_SPLITS, NUMBERS = 8, 2048
"""Splits at most, and numbers in all, that are summed at a time."""


class LayerParameters(NamedTuple):
    """Of one layer: `[lanes, outputs, channels, kernel, kernel]`, and `[lanes, outputs]` where there is one."""

    weights: Tensor
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None
    mean: Tensor | None
    variance: Tensor | None


class Folded(NamedTuple):
    """Weights `[lanes, outputs, kernel, kernel, channels]` as the products read them, and what is added to outputs."""

    weights: Tensor
    bias: Tensor | None


class PartialGradients(NamedTuple):
    """Gradients of a layer's folded weights and bias, in pieces that are yet to be summed.

    A group of `together` neighbouring outputs has met `columns` of the source, the next output `stride` columns later.
    """

    weights: Tensor
    """`[lanes, splits, kernel x together x outputs x columns x channels]`, behind which more may lie."""
    bias: Tensor
    """`[lanes, pieces, several times the outputs]`"""
    together: int
    columns: int
    stride: int
    channels: int
    """Of the source, with those of zeros."""


class ParameterGradients(NamedTuple):
    """In the shapes of the parameters, with all lanes."""

    weights: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor

    def of(self, name: str, own: LayerParameters, eps: float) -> Tensor:
        """The gradient of a parameter; also of statistics, for those who learn them."""
        if name == "mean":
            return -self.bias
        if name == "variance" and own.scale is not None and own.variance is not None:
            return -0.5 * self.scale * own.scale / (own.variance + eps)
        gradient: Tensor = getattr(self, name)
        return gradient


def folded(
    layers: Sequence[LayerParameters], eps: Sequence[float], channels: Sequence[int], dtype: torch.dtype
) -> list[Folded]:
    """The layers' weights in a dtype, with so many channels: more than they have are zeros."""
    results, rows = [], []
    for own, small, padded in zip(layers, eps, channels, strict=True):
        outputs, known, kernel = own.weights.shape[1:4]
        lanes = max(len(tensor) for tensor in own if tensor is not None)
        result = room(own.weights, (lanes, outputs, kernel, kernel, padded), dtype)
        bias = None if own.bias is None and own.scale is None else room(own.weights, (lanes, outputs))
        results.append(Folded(result, bias))
        of_layer = *_read(own.weights, own), result, own.weights if bias is None else bias, small
        numbers = outputs, known, padded, kernel * kernel, int(own.bias is not None), int(own.scale is not None)
        rows.append((lanes * outputs, (*of_layer, *numbers)))
    _launch_layers(fold_kernel, rows, BLOCK)
    return results


def unfolded(
    layers: Sequence[LayerParameters], eps: Sequence[float], gradients: Sequence[PartialGradients]
) -> list[ParameterGradients]:
    """Gradients of the layers' parameters, from those of what they were folded to."""
    results, rows = [], []
    for own, small, pieces in zip(layers, eps, gradients, strict=True):
        outputs, known, kernel = own.weights.shape[1:4]
        lanes, splits = pieces.weights.shape[:2]
        if _is_whole(own, pieces):
            of_weights = pieces.weights[:, 0, : outputs * known].view(lanes, *own.weights.shape[1:])
            results.append(ParameterGradients(of_weights, *(pieces.bias[:, 0],) * 3))
            continue
        result = ParameterGradients(
            room(own.weights, (lanes, *own.weights.shape[1:])),
            *(room(own.weights, (lanes, outputs)) for _ in range(3)),
        )
        results.append(result)
        window = pieces.together, pieces.columns, pieces.stride, pieces.channels
        of_pieces = *pieces.bias.shape[1:], splits, pieces.weights.stride(1), pieces.bias.stride(1)
        numbers = outputs, known, kernel, int(own.bias is not None), int(own.scale is not None), *window, *of_pieces
        read = _read(own.weights, (*own[:3], *own[4:]))  # the shift adds to nothing but its own gradient
        rows.append((lanes * outputs, (*read, pieces.weights, pieces.bias, *result, small, *numbers)))
    at_once = min(MOST_SPLITS, power_of_two(max((pieces.weights.shape[1] for pieces in gradients), default=1), least=1))
    _launch_layers(unfold_kernel, rows, at_once, NUMBERS // at_once)
    return results


def _is_whole(own: LayerParameters, pieces: PartialGradients) -> bool:
    """Whether the only piece is what is looked for: of a product without normalisation."""
    one = pieces.weights.shape[1] == pieces.bias.shape[1] == pieces.columns == 1
    return one and own.scale is None and own.weights.shape[2] == pieces.channels


def _read(weights: Tensor, own: Sequence[Tensor | None]) -> tuple[Tensor | int, ...]:
    """Tensors and the distances between their lanes; weights stand for those that there are not, and are not read."""
    tensors = [weights if tensor is None else tensor for tensor in own]
    return *tensors, *(0 if len(tensor) == 1 else tensor.stride(0) for tensor in tensors)


def _launch_layers(kernel: Any, rows: Sequence[tuple[int, tuple[Any, ...]]], *constants: int) -> None:
    """By layer, how many programs it wants and what they are told."""
    for begin in range(0, len(rows), LAYERS_AT_ONCE):
        some = rows[begin : begin + LAYERS_AT_ONCE]
        ends = list(accumulate(programs for programs, _ in some))
        layers = tuple((end - programs, end, *told) for end, (programs, told) in zip(ends, some, strict=True))
        shifted = tuple(tuple(one + SHIFT if isinstance(one, int) else one for one in told) for told in layers)
        launch(kernel, ends[-1])(shifted, len(some), *constants)


@triton.jit(do_not_specialize=["layers"])
def fold_kernel(layers, LAYERS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """One program per layer, lane and output channel."""
    program = tl.program_id(0) + 2  # SHIFT
    for number in tl.static_range(LAYERS):
        if (program >= layers[number][0]) & (program < layers[number][1]):
            _fold(program - layers[number][0], *layers[number][2:], BLOCK)


@triton.jit(noinline=True)
def _fold(
    program, weights, bias, scale, shift, mean, variance,
    weights_lane, bias_lane, scale_lane, shift_lane, mean_lane, variance_lane,
    result, summands, eps, outputs, channels, padded, taps, biased, normed,
    BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    weights_lane, bias_lane, scale_lane = weights_lane - 2, bias_lane - 2, scale_lane - 2  # SHIFT
    shift_lane, mean_lane, variance_lane = shift_lane - 2, mean_lane - 2, variance_lane - 2
    outputs, channels, padded, taps = outputs - 2, channels - 2, padded - 2, taps - 2
    output, lane = program % outputs, (program // outputs).to(tl.int64)
    has_bias, has_norm = biased != 2, normed != 2
    width = tl.load(variance + lane * variance_lane + output, mask=has_norm, other=1.0)
    factor = tl.load(scale + lane * scale_lane + output, mask=has_norm, other=1.0)
    factor = tl.where(has_norm, factor / tl.sqrt(width + eps), 1.0)
    summand = tl.load(bias + lane * bias_lane + output, mask=has_bias, other=0.0)
    summand -= tl.load(mean + lane * mean_lane + output, mask=has_norm, other=0.0)
    summand = summand * factor + tl.load(shift + lane * shift_lane + output, mask=has_norm, other=0.0)
    tl.store(summands + lane * outputs + output, summand, mask=has_bias | has_norm)
    size = padded * taps
    for start in range(0, size, BLOCK):
        place = start + tl.arange(0, BLOCK)
        channel = place % padded
        source = (output * channels + channel) * taps + place // padded
        known = (place < size) & (channel < channels)
        value = tl.load(weights + lane * weights_lane + source, mask=known, other=0.0) * factor
        places = (lane * outputs + output) * size + place
        tl.store(result + places, value.to(result.dtype.element_ty), mask=place < size)


@triton.jit(do_not_specialize=["layers"])
def unfold_kernel(layers, LAYERS: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """One program per layer, lane and output channel; it reads the pieces in their order, which are most of all.

    The tap in column c met output p of a group at window column c + stride * p.
    """
    program = tl.program_id(0) + 2  # SHIFT
    for number in tl.static_range(LAYERS):
        if (program >= layers[number][0]) & (program < layers[number][1]):
            _unfold(program - layers[number][0], *layers[number][2:], SPLITS, BLOCK)


@triton.jit(noinline=True)
def _unfold(
    program, weights, bias, scale, mean, variance, weights_lane, bias_lane, scale_lane, mean_lane, variance_lane,
    pieces, bias_pieces, of_weights, of_bias, of_scale, of_shift, eps, outputs, channels, kernel, biased, normed,
    together, columns, stride, padded, num_bias_pieces, per_bias_piece, splits, split_step, bias_step,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    weights_lane, bias_lane, scale_lane = weights_lane - 2, bias_lane - 2, scale_lane - 2  # SHIFT
    mean_lane, variance_lane, outputs, channels = mean_lane - 2, variance_lane - 2, outputs - 2, channels - 2
    kernel, together, columns, stride, padded = kernel - 2, together - 2, columns - 2, stride - 2, padded - 2
    num_bias_pieces, per_bias_piece, bias_step = num_bias_pieces - 2, per_bias_piece - 2, bias_step - 2
    splits, split_step = splits - 2, split_step - 2
    output, lane = program % outputs, (program // outputs).to(tl.int64)
    has_norm = normed != 2
    width = tl.load(variance + lane * variance_lane + output, mask=has_norm, other=1.0)
    narrowness = tl.where(has_norm, 1 / tl.sqrt(width + eps), 1.0)
    factor = tl.load(scale + lane * scale_lane + output, mask=has_norm, other=1.0) * narrowness
    place_of_channel = lane * outputs + output

    times = per_bias_piece // outputs
    back = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_bias_pieces * times, BLOCK):
        piece = start + tl.arange(0, BLOCK)
        source = (lane * num_bias_pieces + piece // times) * bias_step + piece % times * outputs + output
        back += tl.load(bias_pieces + source, mask=piece < num_bias_pieces * times, other=0.0)
    of_summand = tl.sum(back, axis=0)
    tl.store(of_shift + place_of_channel, of_summand)
    tl.store(of_bias + place_of_channel, of_summand * factor)

    stretch, taps = columns * padded, kernel * kernel
    size = taps * channels
    scaled = tl.where(has_norm, size, 0)  # how many weights have a scale whose gradient asks for them
    rows = pieces + lane * splits * split_step
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):  # in the order of what is written: a cache helps who reads across, not him
        place = start + tl.arange(0, BLOCK)
        channel, tap = place // taps, place % taps
        known = place < size
        source = (tap // kernel * together * outputs + output) * stretch + tap % kernel * padded + channel
        gradient = tl.zeros((BLOCK,), dtype=tl.float32)
        for begin in range(0, splits, SPLITS):
            split = begin + tl.arange(0, SPLITS)
            there = (split < splits)[:, None] & known[None, :]
            for neighbour in range(together):
                apart = source + neighbour * (outputs * stretch + stride * padded)
                places = split[:, None].to(tl.int64) * split_step + apart[None, :]
                gradient += tl.sum(tl.load(rows + places, mask=there, other=0.0), axis=0)
        value = tl.load(weights + lane * weights_lane + output * size + place, mask=place < scaled, other=0.0)
        tl.store(of_weights + place_of_channel * size + place, gradient * factor, mask=known)
        total += gradient * value
    centre = tl.load(mean + lane * mean_lane + output, mask=has_norm, other=0.0)
    centre -= tl.load(bias + lane * bias_lane + output, mask=biased != 2, other=0.0)
    tl.store(of_scale + place_of_channel, (tl.sum(total, axis=0) - centre * of_summand) * narrowness)
