"""Learning rates per client: the paper's adaptive rate and its fixed ones."""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from fedade.maths.rates import adaptive_rate

Pace = Literal["adaptive", "low", "mid", "high"]
"""How a client sets its rate: from the shift signal, or fixed at one of three values."""


class RateBounds(BaseModel):
    """η_min, η_max and the paper's middle value (Sec. 6.1, image benchmarks)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float = Field(5e-6, ge=0)
    mid: float = Field(1e-5, ge=0)
    high: float = Field(1e-4, ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> "RateBounds":
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} > high {self.high:g}; swap them?")
        return self

    def rate(self, pace: Pace, signal: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
        """η for a signal: Eq. (eq:eta_map), or a constant (FixLR)."""
        if pace == "adaptive":
            return adaptive_rate(signal, self.low, self.high)
        return torch.full_like(signal, {"low": self.low, "mid": self.mid, "high": self.high}[pace])
