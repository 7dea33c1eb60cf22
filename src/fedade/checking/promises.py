"""How a broken promise is told; and steps that no CUDA graph could record, noticed without a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.engine.execution import Direct, Running
from fedade.engine.steps import Steps


class BrokenPromiseError(FedadeError):
    """A method does not do what every method promises."""


def require(condition: Any, reason: str) -> None:
    if not condition:
        raise BrokenPromiseError(reason)


def require_same_tensors(first: Any, second: Any, reason: str) -> None:
    ones, others = tree.leaves(first), tree.leaves(second)
    same = len(ones) == len(others) and all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))
    require(same, reason)


def require_same_rows(first: Any, second: Any, reason: str, but: tuple[str, ...] = ()) -> None:
    require(len(first) == len(second) > 0, f"{reason}: {len(first)} and {len(second)} timesteps")
    for one, other in zip(first, second, strict=True):
        require(one.keys() == other.keys(), f"{reason}: columns {sorted(one.keys() ^ other.keys())}")
        for name in sorted(one.keys() - set(but)):
            require(np.array_equal(one[name], other[name]), f"{reason}: column {name} at timestep {one['timestep'][0]}")


UNRECORDABLE = {
    torch.ops.aten._local_scalar_dense.default: "reads a number back",
    torch.ops.aten.nonzero.default: "waits for a size",
    torch.ops.aten.masked_select.default: "waits for a size",
    torch.ops.aten.equal.default: "reads an answer back",
    torch.ops.aten.lift_fresh.default: "copies a Python number or list to the device",
}


class OnlyRecordable(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations that no CUDA graph can record."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function in UNRECORDABLE:
            raise BrokenPromiseError(f"{function} {UNRECORDABLE[function]}, which a CUDA graph cannot record")
        return function(*arguments, **(options or {}))


@dataclass(frozen=True)
class AsIfRecorded:
    """Runs steps as they are. As in a recording, what is made once is made when a step is first called."""

    def begin(self, steps: Steps) -> Running:
        """Steps that are watched from their second call on."""
        running = Direct().begin(steps)
        watched: Any = {name: _watched(getattr(running, name)) for name in ("score", "observe", "exchange")}
        stand_in: Any = SimpleNamespace(**watched, end_timestep=running.end_timestep)
        whole: Running = stand_in
        return whole


def _watched(step: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def watched(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            return step(*arguments)
        with OnlyRecordable():  # type: ignore[no-untyped-call]
            return step(*arguments)

    return watched
