"""Operations on many clients at once: compiled C++ on a CPU, Triton on a GPU, or what they compute in plain PyTorch.

The one place that decides what runs. Other packages use these functions and do not know what runs them.
"""

import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedade.core.paths import cache_dir
from fedade.kernels import compiling, reference
from fedade.kernels.correction import CorrectedLayer, Correcting, CorrectionRule
from fedade.kernels.heads import HeadPlaces, Heads
from fedade.kernels.layer import Layer
from fedade.kernels.mapping import mapped
from fedade.kernels.native import calls, chain
from fedade.kernels.reference import Affine

__all__ = [
    "Affine", "CorrectedLayer", "Correcting", "CorrectionRule", "HeadPlaces", "Heads", "Layer", "absolute_iterations",
    "attends", "attention", "channel_moments", "compile_side_by_side", "convolved", "convolved_and_measured",
    "corrected_layer", "fused_layers", "known_statistics", "layer_norm", "mapped", "measured", "mixture_weights",
    "normalised", "normalised_pixels", "own_statistics", "packed_weights", "ready_weights", "runs_fused", "stepped",
]  # fmt: skip

SWITCH = "FEDADE_TRITON"
"""Set to 0 in the environment: GPUs run plain PyTorch."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""What the fused convolutions can hold images in."""

MOST_CLASSES = 32
"""The kernel that iterates holds its matrix in registers, which larger ones overflow."""

MOST_CHANNELS = 4096
"""Of a token, which a program normalises as a whole."""

MOST_RATIOS = 2048
"""As above, of the kernel that fits mixtures: samples times classes."""


def fused_layers(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    tf32: bool = False,
    affines: Sequence[Affine | None] | None = None,
    packed: Sequence[Tensor] = (),
) -> Tensor:
    """The output of the last of several layers of one client; `vmap` over clients and `grad` work on it.

    Images `[samples, channels, height, width]` lie in channels-last memory, or are brought there; weights `[outputs,
    channels of a group, kernel, kernel]` may be float32 beside images of lower precision. Padding keeps the size, up to
    the stride. Each layer may have a normalisation between its bias and what is added to it: `affines`, which is folded
    into its weights.

    Layers of one call share kernels, so a whole network is faster than its layers one by one.
    Products of float32 are exact to float32 unless `tf32`. The same input gives the same bits. `packed` is what
    `packed_weights` has made of the weights of layers without normalisations, if it was asked.
    """
    on_cpu = chain.suits(layers, inputs, weights)
    if not on_cpu and inputs[0].dtype in DTYPES and _runs_triton(inputs[0]):
        precision = "tf32" if tf32 else "float32"
        fused: Tensor = _module("lanes").fused_layers(layers, inputs, weights, biases, precision, affines, packed)
        return fused
    both = [*map(reference.folded, weights, biases, affines or [None] * len(layers))]
    run = chain.fused_layers if on_cpu else reference.fused_layers
    return run(layers, inputs, [weight for weight, _ in both], [bias for _, bias in both])


def packed_weights(weights: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """Weights of 1x1 convolutions as products of such a dtype want them, those of many layers in as few launches as can
    be; nothing where that is of no use."""
    if not weights or dtype not in DTYPES or not _runs_triton(weights[0]):
        return ()
    copies: list[Tensor] = _module("lanes").packed_weights(weights, dtype)
    return copies


def ready_weights(layers: Sequence[Layer], weights: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor | None]:
    """Weights of convolutions as `convolved_and_measured` wants them for images of such a dtype, those of many layers
    in one launch; nothing where that is of no use."""
    if not weights or dtype not in DTYPES or not _runs_triton(weights[0]) or torch.is_grad_enabled():
        return [None] * len(weights)
    ready: list[Tensor | None] = _module("measured_lanes").ready_weights(layers, weights, dtype)
    return ready


def convolved(
    images: Tensor, weights: Tensor, stride: int, tf32: bool = False, groups: int = 1, dilation: int = 1
) -> Tensor:
    """A convolution alone, whose padding keeps the size up to the stride; where nothing is fused with it."""
    layer = Layer(0, stride, relu=False, groups=groups, dilation=dilation)
    if chain.suits([layer], [images], [weights]):
        return chain.fused_layers([layer], [images], [weights], [weights.new_zeros(len(weights))])
    if images.dtype in DTYPES and _runs_triton(images):
        precision = "tf32" if tf32 else "float32"
        fused: Tensor = _module("lanes").fused_layers([layer], [images], [weights], [None], precision)
        return fused
    if images.device.type == "cpu" and len(weights) % calls.CHANNELS == 0 and not mapped():
        images = calls.by_pixel(images)  # as the compiled convolutions after it want them
    return reference.convolution(images, weights, layer)


def convolved_and_measured(
    layer: Layer, images: Tensor, weights: Tensor, bias: Tensor | None, tf32: bool = False, ready: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A convolution and a bias, and the `channel_moments` of what it gives: on a GPU the product leaves them, so that
    its output is not read for them. `ready` is what `ready_weights` has made of the weights, if it was asked."""
    if images.dtype in DTYPES and _runs_triton(images) and not torch.is_grad_enabled():
        precision, lanes = "tf32" if tf32 else "float32", _module("measured_lanes")
        found: tuple[Tensor, Tensor] | None = lanes.measured_layer(layer, images, weights, bias, precision, ready)
        if found is not None:
            return found
    result = fused_layers([layer], [images], [weights], [bias], tf32)
    return result, channel_moments(result)


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]` in float32, in one pass over the images."""
    if chain.suits_images(images):
        return calls.channel_moments(images)
    if images.dtype in DTYPES and _runs_triton(images) and not torch.is_grad_enabled():
        moments: Tensor = _module("moment_lanes").channel_moments(images)
        return moments
    return reference.channel_moments(images)


def measured(images: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The images of one client, which are to be read instead of those given; means and (biased) variances of samples,
    `[n, channels]`, or `[1, channels]` of all as a `whole`. Gradients run through them; on a GPU those of both are made
    in one pass over the images."""
    if images.dtype in DTYPES and _runs_triton(images):
        found: tuple[Tensor, Tensor, Tensor] = _module("moment_lanes").measured(images, whole)
        return found
    return reference.measured(images, whole)


def normalised(images: Tensor, affine: Affine, residual: Tensor | None = None, relu: bool = False) -> Tensor:
    """relu(affine(images) + residual) in one pass over the images, of one client, and two back on a GPU."""
    if chain.suits_images(images):
        return calls.scaled(images, *affine.combined(), residual, relu)
    if images.dtype in DTYPES and _runs_triton(images):
        result: Tensor = _module("scaling_lanes").normalised(images, affine, residual, relu)
        return result
    return reference.normalised(images, affine, residual, relu)


def normalised_pixels(pixels: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """(pixels - mean) / deviation per channel of `[n, channels, height, width]`; mean and deviation are `[channels]`.

    On a GPU the images come out in channels-last memory and in the given dtype, as convolutions want them.
    """
    if pixels.dtype is torch.uint8 and _runs_triton(pixels):
        fused: Tensor = _module("pixel_lanes").normalised(pixels, mean, deviation, dtype)
        return fused
    return reference.normalised_pixels(pixels, mean, deviation)


def absolute_iterations(start: Tensor, constant: Tensor, matrix: Tensor, share: float, iterations: int) -> Tensor:
    """s <- constant + |s| matrix + share s, so many times; one kernel on a GPU, if the matrix is small."""
    if len(matrix) <= MOST_CLASSES and _runs_triton(matrix):
        fused: Tensor = _module("simplex").iterate(start, constant, matrix, share, iterations)
        return fused
    return reference.absolute_iterations(start, constant, matrix, share, iterations)


def layer_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tokens `[..., channels]` of one client, normalised in float32; and the same tokens, for whoever else reads them:
    one kernel there and one back, which adds what comes back to both."""
    if tokens.shape[-1] <= MOST_CHANNELS and tokens.dtype in DTYPES and _runs_triton(tokens):
        both: tuple[Tensor, Tensor] = _module("norm_lanes").layer_norm(tokens, weight, bias, eps, dtype)
        return both
    return reference.layer_norm(tokens, weight, bias, eps, dtype), tokens


def attention(heads: Heads, sources: Sequence[Tensor], tf32: bool = False) -> Tensor:
    """softmax(scale queries keys^T) values of one client, `[samples, heads, tokens, channels]`."""
    if attends(heads, sources[0]):
        fused: Tensor = _module("attention_lanes").attention(heads, sources, "tf32" if tf32 else "float32")
        return fused
    return reference.attention(heads, sources)


def attends(heads: Heads, source: Tensor) -> bool:
    """Whether attention among few tokens is one kernel there and one back."""
    return source.dtype in DTYPES and heads.small(source.element_size()) and _runs_triton(source)


def stepped(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor], rate: Tensor, joined: Tensor | None = None
) -> Tensor:
    """Parameters - rate x gradients of one client as one vector, in the order given; it has no gradient. `joined` are
    the parameters as such a vector, where they lie in one. On a GPU one kernel reads all of them where they are."""
    if all(tensor.dtype is torch.float32 for tensor in (rate, *parameters, *gradients)) and _runs_triton(rate):
        moved: Tensor = _module("step_lanes").stepped(parameters, gradients, rate)
        return moved
    return reference.stepped(parameters, gradients, rate, joined)


def mixture_weights(ratios: Tensor, counted: Tensor, start: Tensor, iterations: int) -> Tensor:
    """Weights of classes by expectation-maximisation, from ratios `[*C, n, K]` and counts `[*C, K, P]` of float64.

    One kernel on a GPU, if a batch is small.
    """
    small = math.prod(ratios.shape[-2:]) <= MOST_RATIOS and not torch.is_grad_enabled()
    if small and ratios.dtype is torch.float64 and _runs_triton(ratios):
        fused: Tensor = _module("simplex").mixture_weights(ratios, counted, start, iterations)
        return fused
    return reference.mixture_weights(ratios, counted, start, iterations)


def corrected_layer(
    moments: Tensor, plainly: Callable[[], CorrectedLayer], given: Callable[[], tuple[Correcting, CorrectionRule]]
) -> CorrectedLayer:
    """A layer's correction by such moments, of one client: one kernel on a GPU, which is then told what it is `given`;
    elsewhere, and where the kernel cannot, as it is written `plainly`."""
    if not _runs_triton(moments) or torch.is_grad_enabled():
        return plainly()
    tensors, rule = given()
    small, one_past = len(tensors.mean) <= MOST_CHANNELS, rule.recognises or len(tensors.sizes) == 1
    if not (small and one_past and all(tensor is None or tensor.dtype is torch.float32 for tensor in tensors)):
        return plainly()
    fused: CorrectedLayer = _module("correction_lanes").corrected_layer(tensors, rule)
    return fused


def own_statistics(
    moments: Tensor,
    common: tuple[Tensor, Tensor],
    usual: Tensor,
    before: Tensor,
    earlier: Tensor | None,
    rule: tuple[float, float, float],
    plainly: Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What each sample's statistics follow from, `[2, 2, channels]`, these, `[2, n, channels]`, and how much samples
    differ, in this layer or an `earlier` one, and in this one alone, `[2]`, by moments of the samples of one client and
    how much they differed `before`: one kernel on a GPU; elsewhere, and where it cannot, as it is written `plainly`."""
    exact = all(tensor.dtype is torch.float32 for tensor in (moments, *common, usual, before))
    if not exact or len(common[0]) > MOST_CHANNELS or not _runs_triton(moments) or torch.is_grad_enabled():
        return plainly()
    fused: tuple[Tensor, Tensor, Tensor, Tensor] = _module("own_lanes").own_statistics(
        moments, common, usual, before, earlier, *rule
    )
    return fused


def known_statistics(
    moments: Tensor, share: Tensor, variance: Tensor, least_variance: float, plainly: Callable[[], Tensor]
) -> Tensor:
    """Each sample's statistics, `[2, n, channels]`, by its moments and what they follow from, `[2, 2, channels]`; of
    one client, as above."""
    exact = all(tensor.dtype is torch.float32 for tensor in (moments, share, variance))
    if not exact or not _runs_triton(moments) or torch.is_grad_enabled():
        return plainly()
    fused: Tensor = _module("own_lanes").known_statistics(moments, share, variance, least_variance)
    return fused


def compile_side_by_side(work: Callable[[], object]) -> None:
    """Compile the kernels of some work on all cores: it is gone through without them, and must keep nothing."""
    if importlib.util.find_spec("triton") is None:
        return
    # Of zeros some things cannot be computed; kernels after them are compiled when they are met.
    with suppress(Exception), compiling.instead_of_running():
        work()


def runs_fused(tensor: Tensor) -> bool:
    """Whether kernels of ours, and not plain PyTorch, compute with such a tensor where clients are mapped."""
    return _runs_triton(tensor)


def _runs_triton(tensor: Tensor) -> bool:
    return tensor.is_cuda and _has_triton()


@cache
def _has_triton() -> bool:
    return os.environ.get(SWITCH) != "0" and importlib.util.find_spec("triton") is not None


@cache
def _module(name: str) -> Any:
    # Triton is no dependency of this package: it comes with PyTorch for GPUs, and is imported when it is used.
    if "FEDADE_CACHE" in os.environ:
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir() / "triton"))
    return importlib.import_module(f"fedade.kernels.{name}")
