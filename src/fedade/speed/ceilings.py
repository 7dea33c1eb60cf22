"""What a device can do at best, measured: dense products and copies."""

import torch

from fedade.core.precision import Precision, set_multiplication
from fedade.speed.stopwatch import best_of

SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the square matrices: big enough for the best rate, small enough to take a moment."""

COPIED = {"cpu": 2**28, "cuda": 2**31}
"""Bytes: far more than any cache."""

TIMES = 6


def flops_per_second(device: str, precision: Precision) -> float:
    """Floating-point operations per second of a large matrix product."""
    side = SIDE[device.split(":")[0]]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if dtype is torch.bfloat16 and device == "cpu":
        side //= 8  # processors without such products would take minutes
    factor = torch.randn(side, side, device=device, dtype=dtype)  # equal numbers take less power, and run faster
    set_multiplication(precision)
    return 2 * side**3 / best_of(TIMES, lambda: factor @ factor, device)


def bytes_per_second(device: str) -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.zeros(COPIED[device.split(":")[0]], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * len(source) / best_of(TIMES, lambda: target.copy_(source), device)
