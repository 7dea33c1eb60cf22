"""Shift schedules ω(t): how far a client's law has moved from its first to its last distribution.

Paper appendix, "Online Distribution Shift Modeling" (eqn:label_shift): Q(t) = (1 - ω(t)) Q(0) + ω(t) Q(T).

Three variants, because the paper's wording, its cited sources and its released code disagree:

* ``standard``: the reading that keeps ω in [0, 1] and changes on a scale of √T, as the cited sources do.
* ``literal``: the paper's sentences; the printed sine turns negative, so its absolute value is taken.
* ``release``: the released code, whose clock starts at 0 in the first timestep.

Axes: T timesteps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.core.choices import known_name

Rule = Callable[[Float[Tensor, " T"], int, Float[Tensor, " T"]], Float[Tensor, " T"]]
"""Timesteps 1..T, horizon T and one uniform draw per timestep in; the weights of those timesteps out."""


def _period(horizon: int) -> int:
    return max(1, round(math.sqrt(horizon)))


def _release_period(horizon: int) -> int:
    return max(1, math.isqrt(horizon - 1))


def _alternation(elapsed: Tensor, period: int | float) -> Tensor:
    return torch.floor(elapsed / period) % 2


def _chain(flips: Tensor) -> Tensor:
    return (flips.cumsum(-1) % 2).to(torch.float64)


@dataclass(frozen=True)
class Schedule:
    """How ω moves over time: a rule for each reading; readings that are not given are the standard one."""

    summary: str
    standard: Rule
    literal: Rule | None = None
    release: Rule | None = None
    random: bool = False
    """Whether it depends on the draws, so that every client has a path of its own."""

    def rule(self, variant: str) -> Rule:
        """The rule of a reading."""
        chosen: Rule | None = getattr(self, variant)
        return chosen or self.standard


VARIANTS: tuple[str, ...] = ("standard", "literal", "release")
"""Names of the readings of each schedule."""

SCHEDULES: Mapping[str, Schedule] = {
    "lin": Schedule(
        "a straight line from 0 to 1",
        standard=lambda steps, horizon, _: steps / horizon,
        release=lambda steps, horizon, _: (steps - 1) / max(1, horizon - 1),
    ),
    "sin": Schedule(
        "half sine waves of √T timesteps",
        standard=lambda steps, horizon, _: torch.sin(math.pi * (steps % _period(horizon)) / _period(horizon)),
        literal=lambda steps, horizon, _: torch.sin(math.pi * steps / math.sqrt(horizon)).abs(),
        release=lambda steps, horizon, _: (
            (1 + torch.sin(2 * math.pi * ((steps - 1) % _release_period(horizon)) / _release_period(horizon))) / 2
        ),
    ),
    "squ": Schedule(
        "jumps between 0 and 1 every √T/2 timesteps",
        standard=lambda steps, horizon, _: _alternation(steps, max(1, round(math.sqrt(horizon) / 2))),
        literal=lambda steps, horizon, _: _alternation(steps, math.sqrt(horizon) / 2),
        release=lambda steps, horizon, _: _alternation(steps - 1, max(1, _release_period(horizon) // 2)),
    ),
    "ber": Schedule(
        "jumps at random, every √T timesteps on average",
        standard=lambda _, horizon, uniforms: _chain(uniforms < 1 / math.sqrt(horizon)),
        literal=lambda _, horizon, uniforms: _chain(uniforms >= 1 / math.sqrt(horizon)),
        # The released recursion simulates a new chain for every timestep, so its states are independent draws
        # with the marginal law of a chain that flips with probability 1/√T.
        release=lambda steps, horizon, uniforms: (uniforms < (1 - (1 - 2 / math.sqrt(horizon)) ** (steps - 1)) / 2).to(
            steps.dtype
        ),
        random=True,
    ),
}
"""Every schedule by its name; which of them the paper's tables show is said where the tables are."""


def weights(name: str, horizon: int, uniforms: Float[Tensor, " T"], variant: str = "standard") -> Float[Tensor, " T+1"]:
    """ω(0), ..., ω(T) in [0, 1], float64 (eqn:label_shift); ω(0) = 0, the law before the stream begins.

    ``uniforms`` holds one draw from [0, 1) per timestep t = 1..T; only random schedules read it.
    """
    schedule = SCHEDULES[known_name("schedule", name, SCHEDULES)]
    rule = schedule.rule(known_name("schedule variant", variant, VARIANTS))
    if horizon < 1 or uniforms.shape[-1] != horizon:
        raise ValueError(
            f"schedule horizon: {horizon} timesteps with {uniforms.shape[-1]} uniform draws; "
            "give at least one timestep and one draw per timestep"
        )
    steps = torch.arange(1, horizon + 1, dtype=torch.float64, device=uniforms.device)
    later = rule(steps, horizon, uniforms)
    return torch.cat([torch.zeros_like(later[:1]), later])
