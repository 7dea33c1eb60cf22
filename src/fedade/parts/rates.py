"""Learning rates per client: the paper's adaptive rate and its fixed ones."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from fedade.core.choices import StrictSettings
from fedade.core.split import Parameters, Split
from fedade.maths.counter import uniform
from fedade.maths.signals.dynamics import adaptive_rate

_REPLAY = 2000
"""Its draws are apart from those that measures make from the same key."""

MOST_RATES = 1000
"""How many of a run's sorted rates, evenly spaced, a replaying client keeps at most."""

Pace = Literal["adaptive", "low", "mid", "high", "mean", "shuffled"]
"""How a client sets its rate: from the shift signal; fixed at one of three values; or as a Fed-ADE run did, its mean
or its rates without their timing."""


def constant_rate(rate: float | Tensor, like: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
    """A rate in the form of another number; itself a tensor where rates are tried side by side."""
    return torch.zeros_like(like) + rate


class RateBounds(StrictSettings):
    """η_min, η_max and the paper's middle value (Sec. 6.1, image benchmarks)."""

    low: float = Field(5e-6, ge=0, allow_inf_nan=False)
    """η_min: where nothing moved."""
    mid: float = Field(1e-5, ge=0, allow_inf_nan=False)
    """The fixed rate that the paper calls medium."""
    high: float = Field(1e-4, ge=0, allow_inf_nan=False)
    """η_max: where everything moved."""

    @model_validator(mode="after")
    def _in_order(self) -> "RateBounds":
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} > high {self.high:g}; swap them?")
        return self

    def rate(self, pace: Pace, signal: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
        """η for a signal: Eq. (eq:eta_map), or a constant (FixLR)."""
        if pace == "adaptive":
            return adaptive_rate(signal, self.low, self.high)
        return constant_rate({"low": self.low, "high": self.high}.get(pace, self.mid), signal)


class Paces(StrictSettings):
    """How fast parts of the model move, relative to the client's rate η; the paper moves all alike."""

    shared: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Pace of ψ; 0: it stays as deployed."""
    weights: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Pace of φ but for its biases."""
    biases: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Pace of the biases of φ: a number for each class, which is all that a change of class frequencies asks for."""

    def of(self, parameters: Parameters, split: Split) -> dict[str, Tensor]:
        def pace(name: str) -> float:
            personal = self.biases if name.endswith("bias") else self.weights
            return self.shared if split.is_shared(name) else personal

        return {name: torch.full_like(value, pace(name)) for name, value in parameters.items()}


EVEN = Paces()


class SignalRange(StrictSettings):
    """Which part of [0, 1] the signal S moves in: below `floor` it is the noise of finite batches."""

    floor: float = Field(0.0, ge=0, lt=1)
    """Signal that gives the lowest rate."""
    top: float = Field(1.0, gt=0, le=1)
    """Signal that gives the highest."""

    @model_validator(mode="after")
    def _in_order(self) -> "SignalRange":
        if self.floor >= self.top:
            raise ValueError(f"floor {self.floor:g} is not below top {self.top:g}; swap them?")
        return self

    def stretched(self, signal: Float[Tensor, "*C"]) -> Float[Tensor, "*C"]:
        """S with its range stretched to [0, 1]; the paper's S where floor and top are 0 and 1."""
        if (self.floor, self.top) == (0, 1):
            return signal
        return ((signal - self.floor) / (self.top - self.floor)).clamp(0, 1)


def replayed_rates(pace: Pace, measured: Sequence[float], like: Float[Tensor, "..."]) -> Float[Tensor, " M"]:
    """What a client draws its rates from: the mean of measured ones alone, or their sizes without their timing."""
    rates = like.new_tensor(measured)
    if pace == "mean":
        return rates.mean(0, keepdim=True)
    if len(rates) <= MOST_RATES:
        return rates
    places = torch.linspace(0, len(rates) - 1, MOST_RATES, device=like.device).round().long()
    return rates.sort().values[places]


def replayed_rate(rates: Float[Tensor, " M"], key: Int[Tensor, ""]) -> Float[Tensor, ""]:
    """One of them at random."""
    chosen = (uniform(key, (1,), _REPLAY)[0] * len(rates)).long()
    # An index tensor of one element, because vmap cannot index by a scalar
    return rates[chosen.unsqueeze(0)].squeeze(0)
