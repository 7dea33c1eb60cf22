"""How far the features of two domains lie apart. Axes: m source samples, n target samples, d features."""

import torch
from jaxtyping import Float
from torch import Tensor

KERNEL_WIDTHS = (0.5, 1.0, 2.0)
"""Variances of the Gaussian kernels, as multiples of the mean squared distance (Transfer-Learning-Library)."""


def coral_distance(source: Float[Tensor, "m d"], target: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """mean((μ_s - μ_t)²) + mean((Σ_s - Σ_t)²): Deep CORAL (Sun and Saenko, 2016) with its means, as in practice."""
    means = (source.mean(0) - target.mean(0)).square().mean()
    return means + (_covariance(source) - _covariance(target)).square().mean()


def mmd_distance(source: Float[Tensor, "m d"], target: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Unbiased squared MMD with several Gaussian kernels (DAN, Long et al., 2015); may be below 0 for equal laws.

    A set of one sample has no pairs of its own, and counts nothing for them.
    """
    both = torch.cat([source, target])
    squared = _squared_distances(both)
    scale = squared.detach().mean().clamp_min(torch.finfo(squared.dtype).tiny)
    kernel = torch.stack([torch.exp(-squared / (2 * width * scale)) for width in KERNEL_WIDTHS]).sum(0)
    m = len(source)
    across = kernel[:m, m:].mean()
    return _mean_of_pairs(kernel[:m, :m]) + _mean_of_pairs(kernel[m:, m:]) - 2 * across


def _squared_distances(features: Tensor) -> Tensor:
    # Centred first, since the expanded square cancels badly when all features are large and alike.
    centred = features - features.mean(0).detach()
    lengths = centred.square().sum(-1)
    return (lengths.unsqueeze(0) + lengths.unsqueeze(1) - 2 * centred @ centred.T).clamp_min(0)


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred.T @ centred / max(1, len(features) - 1)


def _mean_of_pairs(kernel: Tensor) -> Tensor:
    size = len(kernel)
    return (kernel.sum() - kernel.diagonal().sum()) / max(1, size * (size - 1))
