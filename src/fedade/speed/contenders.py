"""Who is timed: the plain loop, `torch.func`, and the simulator with each of its client maps and precisions.

What their work asks for, arithmetic and memory traffic, is counted without running it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fedade.client_map import loop
from fedade.core import tree
from fedade.core.context import context_before_first_batch
from fedade.core.precision import Precision, set_multiplication
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Captured, Direct
from fedade.engine.pending import collect
from fedade.engine.steps import Maps, StepBatch, Steps
from fedade.experiments.settings import ExecutionSettings
from fedade.kernels import compile_side_by_side
from fedade.runner.clocks import client_maps
from fedade.speed.plain_loop import PlainLoop, PlainModel, TimestepLoop
from fedade.speed.stacked_loop import StackedLoop
from fedade.speed.workload import RandomStreams, Work

SEEDS = Seeds(0)
STEPS_TO_RECORD = 2
"""Timesteps after which everything that is recorded on a GPU has been: work of the first moments, not of every one."""
Piece = Callable[[], object]


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


@dataclass(frozen=True)
class Pieces:
    """A timestep in parts that can be timed alone."""

    round: Piece
    observe: Piece | None
    """All clients' signals, and their score before adapting, once per timestep; the plain loop has the signals in its
    rounds, for participants."""
    score: Piece


@dataclass(frozen=True)
class Plain:
    """Loops that use nothing of the simulator."""

    work: Work
    scenario: Scenario
    precision: Precision
    """PyTorch's own default multiplies in TF32 within convolutions on a GPU."""
    name: str = "plain loop"
    make: Callable[[Work, Scenario, Seeds], TimestepLoop] = PlainLoop
    federations: int = 1

    def timesteps(self) -> Piece:
        set_multiplication(self.precision)
        plain = self.make(self.work, self.scenario, SEEDS)
        return lambda: [plain.timestep(number) for number in range(1, self.work.timesteps + 1)]

    def pieces(self) -> Pieces:
        plain = self.make(self.work, self.scenario, SEEDS)
        batch = plain.draw(1)
        return Pieces(lambda: plain.round(batch, 1, 0), None, lambda: plain.score(batch))

    def costs(self, unit: UnitCosts) -> tuple[Cost, Cost]:
        return (plain_costs if self.make is PlainLoop else stacked_costs)(self.work, unit)


@dataclass(frozen=True)
class Simulated:
    """The simulator, with certain client maps and precision."""

    name: str
    work: Work
    scenario: Scenario
    maps: Maps
    precision: Precision = "float32"
    federations: int = 1

    def timesteps(self) -> Piece:
        set_multiplication(self.precision)
        streams = cast(RandomStreams, self.scenario.streams)
        scenario = replace(self._scenario, streams=replace(streams, num_timesteps=sys.maxsize))
        clock = Clock(
            self.work.method,
            scenario,
            self.work.exchange_rounds,
            SEEDS,
            self.maps,
            more_federations=tuple(Federation(scenario, Seeds(seed)) for seed in range(1, self.federations)),
            execution=Captured(compile_side_by_side) if _device(self.scenario) == "cuda" else Direct(),
        )
        steps = clock.advance(clock.beginning())
        for _ in range(STEPS_TO_RECORD):
            next(steps)
        return lambda: collect(list(islice(steps, self.work.timesteps)))

    def pieces(self) -> Pieces:
        method, deployment = self.work.method, self._scenario.deployment
        steps = Steps(method, deployment, self.maps)
        drawn = self.scenario.streams.draw(np.arange(self.work.clients), 1)
        keys = torch.arange(self.work.clients)
        batch = StepBatch(drawn.inputs, drawn.labels, drawn.prior, torch.ones_like(keys), keys)
        rows = torch.arange(self.work.participants) * (self.work.clients // self.work.participants)
        sizes = torch.full((self.work.participants,), float(self.work.samples))
        with torch.no_grad():
            shared = method.begin_server(deployment)
            clients = tree.repeat(method.begin(context_before_first_batch(deployment)), self.work.clients)
            states, plan, _ = tree.copied(steps.observe(clients, shared, batch))
        without_gradients = torch.no_grad()
        return Pieces(
            without_gradients(lambda: steps.exchange(states, plan, shared, batch, rows, keys[rows], sizes)),
            without_gradients(lambda: steps.observe(states, shared, batch)),
            without_gradients(lambda: steps.score(states, shared, batch)),
        )

    def costs(self, unit: UnitCosts) -> tuple[Cost, Cost]:
        return simulated_costs(self.work, unit)

    @property
    def _scenario(self) -> Scenario:
        return replace(self.scenario, deployment=self.scenario.deployment.computing_in(self.precision))


Contender = Plain | Simulated
"""One way to do the work: whole timesteps and parts of the first one, ready to run, and what they cost."""


def contenders(
    work: Work, scenario: Scenario, precisions: tuple[Precision, ...], compiled: bool = False
) -> list[Contender]:
    """The plain loop, `torch.func` (also compiled, if asked), our loop, everything vectorised, and what a run takes by
    itself where that is something else."""
    device, precision = _device(scenario), precisions[-1]
    known: list[Contender] = [Plain(work, scenario, "tf32" if device == "cuda" else "float32")]
    for name, compile_it in [("torch.func", False), ("torch.func, compiled", True)][: 1 + compiled]:
        make = partial(StackedLoop, precision=precision, compiled=compile_it)
        known.append(Plain(work, scenario, precision, name, make))
    known.append(Simulated("loop", work, scenario, Maps(loop, loop)))
    together = work.federations if device == "cuda" else 1
    vectorised, chosen = (
        client_maps(ExecutionSettings(client_map=name, device=device), scenario, work.samples, together)
        for name in ("vectorised", "auto")
    )
    for precision in precisions:
        known.append(Simulated("vectorised", work, scenario, vectorised, precision, together))
        if chosen != vectorised:
            known.append(Simulated("auto", work, scenario, chosen, precision, together))
    return known


def _device(scenario: Scenario) -> str:
    return scenario.deployment.source_prior.device.type
