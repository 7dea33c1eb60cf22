"""How a broken promise is told."""

import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.core.method import Method


class BrokenPromiseError(FedadeError):
    """A method does not do what every method promises."""


def require(condition: Any, reason: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(reason)


def line_of(error: BaseException, method: object) -> str:
    """Where in a method's own text an error came from, as ` (file.py, line 7, in observe)`; nothing if not there."""
    modules = (sys.modules.get(kind.__module__) for kind in type(method).__mro__ if kind not in Method.__mro__)
    own = {getattr(module, "__file__", None) for module in modules}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


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
