"""How long accuracy takes to come back after an abrupt change.

Axes: C clients, T timesteps, times the same with t = 0 before them, L lags.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

WINDOW = 5
"""Timesteps before a change that say how good it was."""
TOLERANCE = 0.01
"""A point of accuracy."""


class Recovery(NamedTuple):
    """What follows a kind of change, on average over all of them."""

    steps: int | None
    """Timesteps until accuracy is back within the tolerance; 0: it never left. None: no change, or not before the
    next one."""
    num_changes: int


def changes(weights: Float[Tensor, "C times"], towards: int) -> Int[Tensor, "events 2"]:
    """Client and timestep of every jump of ω from one end to the other: towards 1 (away) or 0 (back)."""
    jumped = (weights[:, :-1] == 1 - towards) & (weights[:, 1:] == towards)
    return jumped.nonzero() + torch.tensor([0, 1], device=weights.device)


def recovery(accuracies: Float[Tensor, "C T"], weights: Float[Tensor, "C times"], towards: int) -> Recovery:
    """Steps until the mean accuracy after a change is within the tolerance of the mean before it.

    Single clients are too noisy to say (a batch of 30 has a deviation of 8 points), so changes are laid on top of each
    other. Before is a change's last `WINDOW` timesteps under the law that it left, or as many as there were; after are
    those until the client's next change.
    """
    events = changes(weights, towards)
    every = [_deficits(accuracies[client], weights[client], time) for client, time in events.tolist()]
    deficits = [deficit for deficit in every if deficit is not None]
    for lag in range(max(map(len, deficits), default=0)):
        present = torch.stack([deficit[lag] for deficit in deficits if len(deficit) > lag])
        if present.mean() <= TOLERANCE:
            return Recovery(lag, len(deficits))
    return Recovery(None, len(deficits))


def _deficits(accuracy: Float[Tensor, " T"], weights: Float[Tensor, " times"], time: int) -> Float[Tensor, " L"] | None:
    """By how much accuracy is below what it was, from the change on; None if nothing came before it."""
    same_as_before, same_as_after = weights[1:time].flip(0) == weights[time - 1], weights[time:] == weights[time]
    before = accuracy[max(0, time - 1 - min(WINDOW, _run(same_as_before))) : time - 1]
    after = accuracy[time - 1 : time - 1 + _run(same_as_after)]
    return before.mean() - after if len(before) else None


def _run(flags: Tensor) -> int:
    """How many flags are set before the first that is not."""
    return int(flags.int().cumprod(0).sum())
