"""The norm of a linear map that is known by its products only. Axes: a its arguments, b its values."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def largest_singular_value(
    forward: Callable[[Float[Tensor, " a"]], Float[Tensor, " b"]],
    backward: Callable[[Float[Tensor, " b"]], Float[Tensor, " a"]],
    start: Float[Tensor, " a"],
    iterations: int = 20,
) -> Float[Tensor, ""]:
    """Largest singular value of A, from A and Aᵀ (von Mises and Pollaczek-Geiringer, 1929); never above the true one.

    For a symmetric A, `backward` is `forward`.
    """
    vector = _unit(start)
    for _ in range(iterations - 1):
        vector = _unit(backward(forward(vector)))
    largest: Tensor = torch.linalg.vector_norm(forward(vector))
    return largest


def _unit(vector: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(vector)
    return vector / torch.where(norm > 0, norm, torch.ones_like(norm))
