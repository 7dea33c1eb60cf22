"""How far the features of two domains lie apart. Axes: m source samples, n target samples, d features."""

from jaxtyping import Float
from torch import Tensor


def coral_distance(source: Float[Tensor, "m d"], target: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """mean((μ_s - μ_t)²) + mean((Σ_s - Σ_t)²): Deep CORAL (Sun and Saenko, 2016) with its means, as in practice."""
    means = (source.mean(0) - target.mean(0)).square().mean()
    return means + (_covariance(source) - _covariance(target)).square().mean()


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred.T @ centred / max(1, len(features) - 1)
