"""Step sizes of online gradient descent over T timesteps: UOGD and ATLAS (Bai et al., 2022).

Letters: D diameter of the decision set, G bound on gradient norms, σ smallest singular value of the confusion matrix,
K classes, T horizon. Axes: N step sizes.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Scalar = Float[Tensor, ""]


def single_step_size(diameter: Scalar, gradient_bound: Scalar, horizon: int) -> Float[Tensor, " 1"]:
    """D / (G √T): one step size, as UOGD's released code sets it."""
    return (diameter / (gradient_bound * math.sqrt(horizon))).reshape(1)


def released_pool(diameter: Scalar, gradient_bound: Scalar, horizon: int) -> Float[Tensor, " N"]:
    """D / (G √T) · 2^i up to the first value above D / G, as in ATLAS's released code: ⌊½ log₂ T⌋ + 2 step sizes."""
    count = math.floor(math.log2(horizon) / 2) + 2
    return single_step_size(diameter, gradient_bound, horizon) * _powers_of_two(count, diameter)


def theorem_pool(
    diameter: Scalar, gradient_bound: Scalar, confusion: Float[Tensor, "K K"], horizon: int
) -> Float[Tensor, " N"]:
    """D σ / (2 G √(K T)) · 2^i, of which 1 + ⌈½ log₂(1 + 2T)⌉ (Bai et al., 2022, Theorem 2)."""
    count = 1 + math.ceil(math.log2(1 + 2 * horizon) / 2)
    conditioning: Tensor = torch.linalg.svdvals(confusion.double())[-1].to(confusion.dtype)
    smallest = diameter * conditioning / (2 * gradient_bound * math.sqrt(len(confusion) * horizon))
    return smallest * _powers_of_two(count, diameter)


def _powers_of_two(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, dtype=like.dtype, device=like.device).exp2()
