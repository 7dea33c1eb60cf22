"""How much arithmetic and how much memory traffic a piece of work asks for, counted without running it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fedade.speed.plain_loop import PlainModel
from fedade.speed.workload import Work


@dataclass(frozen=True)
class Cost:
    """Floating-point operations, and bytes if every operation reads its inputs and writes its outputs once."""

    flops: float
    traffic: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.traffic + other.traffic)

    def __rmul__(self, times: float) -> "Cost":
        return Cost(times * self.flops, times * self.traffic)


@dataclass(frozen=True)
class UnitCosts:
    """Costs of one client's batch: a pass without gradients, and a step on all parameters."""

    forward: Cost
    step: Cost


def unit_costs(work: Work) -> UnitCosts:
    """Counted on tensors without contents, in the network's plain form."""
    with torch.device("meta"):
        model = PlainModel(work.network()).to("meta").eval()
        inputs = torch.empty(work.samples, *work.input_shape, dtype=torch.uint8)

    return UnitCosts(_counted(torch.no_grad()(lambda: model(inputs))), _counted(lambda: model(inputs).sum().backward()))


def plain_costs(work: Work, unit: UnitCosts) -> tuple[Cost, Cost]:
    """Costs of the plain loop: one round, and what a timestep adds to its rounds."""
    # Two signals; personal steps stop at the features.
    return _costs(work, unit, 2 + work.personal_epochs)


def stacked_costs(work: Work, unit: UnitCosts) -> tuple[Cost, Cost]:
    """Costs of the loop with `torch.func`: one pass for both signals, and one for all personal steps."""
    return _costs(work, unit, 2)


def simulated_costs(work: Work, unit: UnitCosts) -> tuple[Cost, Cost]:
    """Costs of the simulator: one round, and what a timestep adds: observing, which also scores, and scoring after."""
    return _costs(work, unit, 1, passes_a_timestep=2)


def _costs(work: Work, unit: UnitCosts, passes_a_round: int, passes_a_timestep: int = 1) -> tuple[Cost, Cost]:
    one = work.participants * (passes_a_round * unit.forward + work.joint_epochs * unit.step)
    return one, (passes_a_timestep * work.clients) * unit.forward


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            touched = [leaf for leaf in pytree.tree_leaves((args, result)) if isinstance(leaf, Tensor)]
            self.num_bytes += sum(leaf.numel() * leaf.element_size() for leaf in touched)
        return result


def _counted(function: Callable[[], object]) -> Cost:
    with FlopCounterMode(display=False) as flops, _Traffic() as traffic:
        function()
    return Cost(float(flops.get_total_flops()), float(traffic.num_bytes))
