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
from typing import Any

Rule = Callable[[Any, int, Any], Any]
"""Timesteps 1..T, horizon T and one uniform draw per timestep in, float64; the weights of those timesteps out.

Rules use the tensors' own functions: the names of schedules are known without PyTorch, which takes seconds to import.
"""


def _period(horizon: int) -> int:
    return max(1, round(math.sqrt(horizon)))


def _release_period(horizon: int) -> int:
    return max(1, math.isqrt(horizon - 1))


def _alternation(elapsed: Any, period: int | float) -> Any:
    return (elapsed / period).floor() % 2


def _chain(flips: Any) -> Any:
    return (flips.cumsum(-1) % 2).double()


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
        standard=lambda steps, horizon, _: (math.pi * (steps % _period(horizon)) / _period(horizon)).sin(),
        literal=lambda steps, horizon, _: (math.pi * steps / math.sqrt(horizon)).sin().abs(),
        release=lambda steps, horizon, _: (
            (1 + (2 * math.pi * ((steps - 1) % _release_period(horizon)) / _release_period(horizon)).sin()) / 2
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
