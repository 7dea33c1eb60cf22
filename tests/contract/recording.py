"""Steps are replayed as CUDA graphs, which cannot record everything: noticed here without a GPU."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedade.engine.execution import Direct

UNRECORDABLE = {
    torch.ops.aten._local_scalar_dense.default: "reads a number back",
    torch.ops.aten.nonzero.default: "waits for a size",
    torch.ops.aten.masked_select.default: "waits for a size",
    torch.ops.aten.equal.default: "reads an answer back",
    torch.ops.aten.lift_fresh.default: "copies a Python number or list to the device",
}


class OnlyRecordable(TorchDispatchMode):
    """Refuses operations that no CUDA graph can record."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        assert function not in UNRECORDABLE, f"{function} {UNRECORDABLE[function]}"
        return function(*arguments, **(options or {}))


@dataclass(frozen=True)
class AsIfRecorded:
    """Runs steps as they are. As in a recording, what is made once is made when a step is first called."""

    def begin(self, steps):
        running = Direct().begin(steps)
        steps = {name: self._watched(getattr(running, name)) for name in ("score", "observe", "exchange")}
        return SimpleNamespace(**steps, end_timestep=running.end_timestep)

    def _watched(self, step):
        calls = 0

        def watched(*arguments):
            nonlocal calls
            calls += 1
            if calls == 1:
                return step(*arguments)
            with OnlyRecordable():
                return step(*arguments)

        return watched
