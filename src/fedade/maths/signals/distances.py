"""How far two class distributions lie apart, each distance in [0, 1] and 0 for equal inputs.

Axes: *C any client axes, K classes. The cosine distance, which is the paper's, stands in `dynamics`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

SMOOTHING = 1e-3
"""Added to every class before a logarithm; bounds KL by ln((1 + ε) / ε) = 6.91."""


def kl_distance(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """1 - e^-KL(previous ‖ current), Kullback and Leibler (1951), of smoothed distributions; not symmetric."""
    return _saturating(_kl_divergence(_smoothed(previous), _smoothed(current)))


def jeffreys_distance(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """1 - e^-J, with J the mean of both directions of KL (Jeffreys, 1946)."""
    first, second = _smoothed(previous), _smoothed(current)
    return _saturating((_kl_divergence(first, second) + _kl_divergence(second, first)) / 2)


def jensen_shannon(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Jensen-Shannon divergence in bits (Lin, 1991)."""
    middle = (previous + current) / 2
    possible = torch.where(middle > 0, middle, torch.ones_like(middle))
    nats = (torch.xlogy(previous, previous / possible) + torch.xlogy(current, current / possible)).sum(-1) / 2
    return (nats / math.log(2)).clamp(0, 1)


def hellinger(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """√(1 - Σ√(ab)), Hellinger (1909): linear in small changes, where the cosine distance is quadratic."""
    # Half the squared chord of the roots equals 1 - Σ√(ab) without its cancellation near 0.
    return ((previous.sqrt() - current.sqrt()).square().sum(-1) / 2).clamp(0, 1).sqrt()


def total_variation(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """½‖a - b‖₁: the step of the path length in the paper's regret bound; Wasserstein with cost 1 between classes."""
    return ((previous - current).abs().sum(-1) / 2).clamp(0, 1)


def index_wasserstein(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Wasserstein-1 with cost |i - j| / (K - 1): meaningful only where the order of the classes is."""
    moved = (previous - current).cumsum(-1)[..., :-1].abs().sum(-1)
    return (moved / max(1, previous.shape[-1] - 1)).clamp(0, 1)


def without_noise_floor(
    distance: Float[Tensor, "*C"], previous_floor: Float[Tensor, "*C"], floor: Float[Tensor, "*C"]
) -> Float[Tensor, "*C"]:
    """max(0, S - (s' + s) / 4): what a distance of two batches shows beyond the noise of finite batches.

    A floor s is the distance of two random halves of one batch. It holds twice the noise of two whole batches where
    noise grows as 1/n; for distances that are linear in small changes it is √2 times, and 0.3 of the floor remains.
    """
    return (distance - (previous_floor + floor) / 4).clamp_min(0)


def _smoothed(distribution: Tensor) -> Tensor:
    return (distribution + SMOOTHING) / (1 + distribution.shape[-1] * SMOOTHING)


def _kl_divergence(first: Tensor, second: Tensor) -> Tensor:
    return (first * (first / second).log()).sum(-1).clamp_min(0)


def _saturating(divergence: Tensor) -> Tensor:
    return -torch.expm1(-divergence)
