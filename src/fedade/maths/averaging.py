"""Server aggregation, paper Sec. 3. Axes: C clients, *S the shape of one parameter."""

import torch
from jaxtyping import Float, Real
from torch import Tensor


def weighted_mean(values: Float[Tensor, " C *S"], weights: Real[Tensor, " C"]) -> Float[Tensor, "*S"]:
    """Mean over clients weighted by their sample counts, paper Sec. 3 (eq:aggregate).

    Weights are non-negative; where all are 0 every client counts the same.
    """
    weights = weights.to(values.dtype)
    total = weights.sum(0)
    equal_shares = torch.full_like(weights, 1 / weights.shape[0])
    shares = torch.where(total > 0, weights / torch.where(total > 0, total, 1), equal_shares)
    # Multiplied and summed, not contracted: a matrix product may run in reduced precision on a GPU.
    return (shares.reshape(-1, *(1,) * (values.ndim - 1)) * values).sum(0)
