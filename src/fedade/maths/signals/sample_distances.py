"""How far two sets of unit vectors lie apart, each distance in [0, 1] and 0 for equal sets.

Axes: *C any client axes, m and n samples, d features, u directions.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def sliced_wasserstein(
    first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C m d"], directions: Float[Tensor, "u d"]
) -> Float[Tensor, "*C"]:
    """Mean Wasserstein-1 distance of the projections (Bonneel et al., 2015), as a share of its largest value.

    Two opposite clusters have the largest, 2 E|u₁| for a uniform direction u; it vanishes as 1/√d, so dividing by 2
    alone would leave 0.07 of the range at d = 128.
    """
    from_first, from_second = ((samples @ directions.T).sort(-2).values for samples in (first, second))
    moved = (from_first - from_second).abs().mean((-2, -1))
    return (moved / (2 * mean_coordinate(directions.shape[-1]))).clamp(0, 1)


def mean_coordinate(dimension: int) -> float:
    """E|u₁| of a uniform direction: Γ(d/2) / (√π Γ((d + 1)/2))."""
    return math.exp(math.lgamma(dimension / 2) - math.lgamma((dimension + 1) / 2)) / math.sqrt(math.pi)


def kernel_discrepancy(first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C"]:
    """√(MMD² / 2), biased, with k(x, y) = exp(-‖x - y‖² / median): Gretton et al. (2012)."""
    m, both = first.shape[-2], torch.cat([first, second], -2)
    squared = _distances(both, both).square()
    row, column = torch.triu_indices(both.shape[-2], both.shape[-2], offset=1, device=both.device)
    apart = squared[..., row, column]
    # Repeated samples may put the median at 0, where the kernel would tell nothing apart.
    median, mean = apart.median(-1).values, apart.mean(-1)
    width = torch.where(median > 0, median, torch.where(mean > 0, mean, torch.ones_like(mean)))
    kernel = torch.exp(-squared / width[..., None, None])
    within = kernel[..., :m, :m].mean((-2, -1)) + kernel[..., m:, m:].mean((-2, -1))
    return ((within - 2 * kernel[..., :m, m:].mean((-2, -1))) / 2).clamp(0, 1).sqrt()


def energy_distance(first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C"]:
    """(2E|XY| - E|XX'| - E|YY'|) / 2E|XY|, Székely and Rizzo (2013): no parameter to choose."""
    across, within_first, within_second = (
        _distances(left, right).mean((-2, -1)) for left, right in ((first, second), (first, first), (second, second))
    )
    total = torch.where(across > 0, 2 * across, torch.ones_like(across))
    return ((2 * across - within_first - within_second) / total).clamp(0, 1)


def _distances(first: Tensor, second: Tensor) -> Tensor:
    # Differences rather than a matrix product, whose cancellation leaves equal samples apart.
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
