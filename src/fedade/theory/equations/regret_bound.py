"""The dynamic regret bound of paper Sec. 5.2 (th:regretbound) and the learning rate that makes it smallest.

The third term is √(B S̄ T)/η in the main text and √(B S̄ T/η) in the appendix. Only the appendix's leads to
S̄^{1/3} T^{2/3}, so that is the one here. The bound assumes convex losses.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedade.theory.equations.golden_section import golden_section


@dataclass(frozen=True)
class BoundConstants:
    """What the bound is made of."""

    num_classes: int
    """|I|"""
    gradient_norm: float
    """G: no gradient of a sample's loss is longer."""
    loss: float
    """B: no sample's loss is larger."""
    radius: float
    """Γ: parameters stay within this distance of one another."""
    singular_value: float
    """σ of the confusion matrix."""
    cumulative_signal: float
    """S̄_c"""
    num_timesteps: int
    """T"""


class BoundTerms(NamedTuple):
    """The three summands of the bound."""

    optimisation: float
    projection: float
    adaptation: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return sum(self)


def bound_terms(constants: BoundConstants, rate: float) -> BoundTerms:
    """2(|I|G²/σ² + B²)ηT, Γ²/η and 4(Γ+1)√(B S̄ T/η): appendix, proof of th:regretbound."""
    slope, inverse, root = _coefficients(constants)
    return BoundTerms(slope * rate, inverse / rate, root / math.sqrt(rate))


def optimal_rate_order(cumulative_signal: float, num_timesteps: int) -> float:
    """(S̄/T)^{1/3}: η* up to a constant that the paper does not give, Sec. 5.2 ("Min-max Optimality")."""
    return float((cumulative_signal / num_timesteps) ** (1 / 3))


def optimal_rate(constants: BoundConstants) -> float:
    """η at which the three terms together are smallest; 0 where every rate above it is worse.

    In log η the bound is a sum of exponentials, hence convex. At the lower end of the bracket one of the falling terms
    is as steep as the rising one; at the upper end none of them is more than half as steep.
    """
    slope, inverse, root = _coefficients(constants)
    if slope == 0:
        return math.inf
    low = max(math.sqrt(inverse / slope), (root / (2 * slope)) ** (2 / 3))
    high = max(math.sqrt(2 * inverse / slope), (root / slope) ** (2 / 3))
    if low == 0:
        return 0.0
    found = golden_section(
        lambda logarithm: bound_terms(constants, math.exp(logarithm)).total, *map(math.log, (low, high))
    )
    return math.exp(found)


def _coefficients(constants: BoundConstants) -> tuple[float, float, float]:
    """Factors of η, 1/η and 1/√η in the bound."""
    steepness = constants.num_classes * constants.gradient_norm**2 / constants.singular_value**2
    return (
        2 * (steepness + constants.loss**2) * constants.num_timesteps,
        constants.radius**2,
        4 * (constants.radius + 1) * math.sqrt(constants.loss * constants.cumulative_signal * constants.num_timesteps),
    )
