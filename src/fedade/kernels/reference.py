"""What the kernels compute, in plain PyTorch."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedade.kernels.heads import Heads
from fedade.kernels.layer import Layer
from fedade.kernels.mapping import lies_by_pixel, mapped

NEXT_TO_NOTHING = 1e-30
"""Added to a variance of 1 it is still 1; some versions of PyTorch refuse 0."""


def convolution(images: Tensor, weights: Tensor, layer: Layer) -> Tensor:
    """The convolution of a layer alone; padding keeps the size, up to the stride."""
    padding = layer.dilation * (weights.shape[-1] // 2)
    return F.conv2d(images, weights.to(images.dtype), None, layer.stride, padding, layer.dilation, layer.groups)


def fused_convolution(images: Tensor, weights: Tensor, bias: Tensor, residual: Tensor | None, layer: Layer) -> Tensor:
    """relu(conv(images) + bias + residual), the relu or a gelu if asked for."""
    output = convolution(images, weights, layer) + bias.to(images.dtype)[:, None, None]
    if residual is not None:
        output = output + residual
    return output.relu() if layer.relu else F.gelu(output) if layer.gelu else output


def dense_weights(weights: Tensor, layer: Layer) -> Tensor:
    """The same convolution without groups and dilation: zeros stand where an output meets no channel, or no pixel."""
    if layer.dilation > 1:
        size, step = weights.shape[-1], layer.dilation
        apart = F.pad(weights[..., None, :, None], (0, step - 1, 0, 0, 0, step - 1))
        within = step * (size - 1) + 1
        weights = apart.reshape(*weights.shape[:2], size * step, size * step)[..., :within, :within]
    if layer.groups > 1:
        own = torch.eye(layer.groups, device=weights.device, dtype=weights.dtype)[:, None, :, None, None, None]
        of_group = weights.reshape(layer.groups, -1, 1, *weights.shape[1:])
        weights = (of_group * own).flatten(2, 3).flatten(0, 1)
    return weights


def fused_layers(
    layers: Sequence[Layer], inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """The output of the last layer (see `Layer`)."""
    tensors = list(inputs)
    for layer, weight, bias in zip(layers, weights, biases, strict=True):
        residual = None if layer.residual is None else tensors[layer.residual]
        tensors.append(fused_convolution(tensors[layer.source], weight, bias, residual, layer))
    return tensors[-1]


def channel_moments(images: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, channels]`, in float32 at least."""
    exact = torch.promote_types(images.dtype, torch.float32)
    if lies_by_pixel(images):
        pixels = images.permute(0, 2, 3, 1).flatten(1, 2).to(exact)
        return torch.stack((pixels.mean(1), pixels.square().mean(1)))
    plane = images.flatten(2)
    # A norm needs no squares of the whole image in memory.
    squares = torch.linalg.vector_norm(plane, dim=-1, dtype=exact).square() / plane.shape[-1]
    return torch.stack((plane.mean(-1, dtype=exact), squares))


def measured(images: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The images, and means and (biased) variances of samples `[n, channels]`, or `[1, channels]` of all as a `whole`,
    in float32 at least."""
    exact = images.to(torch.promote_types(images.dtype, torch.float32))
    mean = exact.mean((0, 2, 3) if whole else (2, 3)).reshape(-1, images.shape[1])
    apart = (exact - mean[:, :, None, None]).square()
    return images, mean, apart.mean((0, 2, 3) if whole else (2, 3)).reshape(mean.shape)


class Affine(NamedTuple):
    """What a normalisation layer does to each channel: scale (x - mean) / √(variance + eps) + shift. Statistics are
    `[channels]`, or `[n, channels]` where every sample has its own."""

    scale: Tensor
    shift: Tensor
    mean: Tensor
    variance: Tensor
    eps: float

    def combined(self) -> tuple[Tensor, Tensor]:
        """The same as one factor and one summand."""
        factor = self.scale * torch.rsqrt(self.variance + self.eps)
        return factor, self.shift - self.mean * factor


def normalised(images: Tensor, affine: Affine, residual: Tensor | None, relu: bool) -> Tensor:
    """relu(affine(images) + residual), in the precision of the images."""
    scale, shift = affine.combined()
    plain = images.device.type == "cpu" and images.dtype is scale.dtype and scale.ndim == 1
    if plain and not torch.is_grad_enabled() and not mapped():
        # One pass; it can be neither mapped nor differentiated by the scale.
        if lies_by_pixel(images):  # in which PyTorch's own takes twice as long
            result = torch.addcmul(shift, images.permute(0, 2, 3, 1), scale).permute(0, 3, 1, 2)
        else:
            mean, variance = torch.zeros_like(shift), torch.ones_like(scale)
            result = F.batch_norm(images, mean, variance, scale, shift, False, 0.0, NEXT_TO_NOTHING)
        result = result if residual is None else result.add_(residual)
        return result.relu_() if relu else result
    factor, summand = (value.to(images.dtype)[..., None, None] for value in (scale, shift))
    result = images * factor + summand
    result = result if residual is None else result + residual
    return result.relu() if relu else result


def layer_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """In float32 at least, whatever comes in and goes out."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    return F.layer_norm(exact, weight.shape, weight.to(exact.dtype), bias.to(exact.dtype), eps).to(dtype)


def attention(heads: Heads, sources: Sequence[Tensor]) -> Tensor:
    """The softmax in float32 at least."""
    queries, keys, values = (
        sources[of.source].flatten(1)[:, heads.numbers_of(of, sources[of.source].device)] for of in heads.places
    )
    exact = torch.promote_types(queries.dtype, torch.float32)
    weights = (queries @ keys.mT).to(exact).mul(heads.scale).softmax(-1)
    return weights.to(values.dtype) @ values


def folded(weights: Tensor, bias: Tensor | None, affine: Affine | None) -> tuple[Tensor, Tensor]:
    """Weights and bias of the convolution that also does the normalisation after it, if there is one."""
    if affine is None:
        return weights, weights.new_zeros(len(weights)) if bias is None else bias
    mean = affine.mean if bias is None else affine.mean - bias
    factor, summand = affine._replace(mean=mean).combined()
    return weights * factor[:, None, None, None], summand


def normalised_pixels(pixels: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """(pixels - mean) / deviation per channel, in the precision of the mean unless pixels are floats."""
    images = pixels if pixels.is_floating_point() else pixels.to(mean.dtype)
    return (images - mean[:, None, None]) / deviation[:, None, None]


def absolute_iterations(start: Tensor, constant: Tensor, matrix: Tensor, share: float, iterations: int) -> Tensor:
    """s <- constant + |s| matrix + share s, so many times."""
    state = start
    for _ in range(iterations):
        state = (constant + state.abs() @ matrix).add(state, alpha=share)
    return state


def mixture_weights(ratios: Tensor, counted: Tensor, start: Tensor, iterations: int) -> Tensor:
    """w <- w Σ_i r_i / (r_i w) + counted, made to sum to 1, so many times, for each column of counts `[K, P]`."""
    transposed = ratios.mT
    weights = start.unsqueeze(-1).expand(*ratios.shape[:-2], *counted.shape[-2:])
    for _ in range(iterations):
        likelihoods = (ratios @ weights).clamp_min(torch.finfo(ratios.dtype).tiny)
        masses = weights * (transposed @ likelihoods.reciprocal()) + counted
        weights = masses / masses.sum(-2, keepdim=True)
    return weights


def stepped(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor], rate: Tensor, joined: Tensor | None = None
) -> Tensor:
    """Parameters - rate x gradients as one vector; `joined` are the parameters, if they are one already."""
    if joined is None:
        joined = torch.cat([parameter.flatten() for parameter in parameters])
    return torch.addcmul(joined, rate, torch.cat([gradient.flatten() for gradient in gradients]), value=-1)
