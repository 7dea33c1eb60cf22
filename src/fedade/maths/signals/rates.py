"""From signal to learning rate, paper Sec. 4.1. Axes: *C any client axes."""

import torch
from jaxtyping import Float
from torch import Tensor


def adaptive_rate(signal: Float[Tensor, "*C"], low: float, high: float) -> Float[Tensor, "*C"]:
    """Learning rate η = η_min + (η_max - η_min) S within [η_min, η_max], paper Sec. 4.1 (eq:eta_map)."""
    if low < 0:
        raise ValueError(f"rate bounds: low {low:g} is negative; give 0 or more")
    if low > high:
        raise ValueError(f"rate bounds: low {low:g} > high {high:g}; swap them?")
    if low == high:
        return torch.full_like(signal, low)
    return (low + (high - low) * signal).clamp(low, high)
