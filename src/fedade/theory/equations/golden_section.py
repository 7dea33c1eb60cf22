"""The minimum of a function of one variable that falls and then rises (Kiefer, 1953)."""

import math
from collections.abc import Callable

_GOLDEN = (math.sqrt(5) - 1) / 2


def golden_section(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-10) -> float:
    """Where the function is smallest within [low, high], up to the tolerance or to what rounding lets one tell."""
    if not low <= high:
        raise ValueError(f"golden section: low {low:g} > high {high:g}; swap them?")
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance * (1 + abs(low) + abs(high)):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2
