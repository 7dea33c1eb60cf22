"""How a broken promise is told."""

from typing import Any

import numpy as np
import torch

from fedade.core import tree
from fedade.core.errors import FedadeError


class BrokenPromiseError(FedadeError):
    """A method does not do what every method promises."""


def require(condition: Any, reason: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(reason)


def require_same_tensors(first: Any, second: Any, reason: str) -> None:
    """Raise unless two trees of tensors are equal, bit by bit."""
    ones, others = tree.leaves(first), tree.leaves(second)
    same = len(ones) == len(others) and all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))
    require(same, reason)


def require_same_rows(first: Any, second: Any, reason: str, but: tuple[str, ...] = ()) -> None:
    """Raise unless two traces are equal in all columns but the named ones."""
    require(len(first) == len(second) > 0, f"{reason}: {len(first)} and {len(second)} timesteps")
    for one, other in zip(first, second, strict=True):
        require(one.keys() == other.keys(), f"{reason}: columns {sorted(one.keys() ^ other.keys())}")
        for name in sorted(one.keys() - set(but)):
            require(np.array_equal(one[name], other[name]), f"{reason}: column {name} at timestep {one['timestep'][0]}")
