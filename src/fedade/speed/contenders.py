"""Who is timed: the plain loop, `torch.func`, and the simulator with each of its client maps and precisions."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

import numpy as np
import torch

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
from fedade.speed.counting import Cost, UnitCosts, plain_costs, simulated_costs, stacked_costs
from fedade.speed.plain_loop import PlainLoop, TimestepLoop
from fedade.speed.stacked_loop import StackedLoop
from fedade.speed.workload import RandomStreams, Work

SEEDS = Seeds(0)
STEPS_TO_RECORD = 2
"""Timesteps after which everything that is recorded on a GPU has been: work of the first moments, not of every one."""
Piece = Callable[[], object]


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

        def run() -> None:
            for timestep in range(1, self.work.timesteps + 1):
                plain.timestep(timestep)

        return run

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
            states, plan, _ = steps.observe(clients, shared, batch)
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
