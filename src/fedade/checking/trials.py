"""Short runs of one method, scenarios for them, and how a broken promise is told."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, World
from fedade.engine.execution import Direct, Running
from fedade.engine.steps import Maps, Steps
from fedade.scenarios.building import build_scenario
from fedade.scenarios.settings import ScenarioSettings

Rows = list[dict[str, NDArray[Any]]]
SMALL = {"num_clients": 8, "num_timesteps": 4, "samples": 20, "train_size": 350, "reference_size": 50}
"""Settings of a scenario on the default data that takes no second."""

UNRECORDABLE = {
    torch.ops.aten._local_scalar_dense.default: "reads a number back",
    torch.ops.aten.nonzero.default: "waits for a size",
    torch.ops.aten.masked_select.default: "waits for a size",
    torch.ops.aten.equal.default: "reads an answer back",
    torch.ops.aten.lift_fresh.default: "copies a Python number or list to the device",
}


class TrialScenarios(NamedTuple):
    """What methods are tried on."""

    usual: Scenario
    """Clients whose classes and inputs drift."""
    single_samples: Scenario
    """Batches of one."""


def trial_scenarios(cache: Path) -> TrialScenarios:
    """Short scenarios on the default data, whose model is trained once and kept in the cache."""

    def made(**settings: Any) -> Scenario:
        few = {**SMALL, "num_clients": 4, **settings}
        return build_scenario(ScenarioSettings(**few), 0, "cpu", cache, lambda _done, _of: None)

    return TrialScenarios(made(kind="both", schedule="squ", num_timesteps=3), made(samples=1, num_timesteps=2))


class Ran(NamedTuple):
    """What a run leaves: the columns of every timestep, and the world after the last."""

    rows: Rows
    world: World


@dataclass(frozen=True)
class MethodTrial:
    """A method and what it is tried on; the usual run, of which many checks read, is made once."""

    method: Method
    scenarios: TrialScenarios

    @cached_property
    def usual_run(self) -> Ran:
        """All timesteps of the usual scenario, clients vectorised."""
        return ran(self.method, self.scenarios.usual)


def clock(
    method: Method,
    scenario: Scenario,
    seed: int = 0,
    rounds: int = 1,
    participation: float = 0.5,
    vectorised: bool = True,
) -> Clock:
    client_map = Vectorised() if vectorised else loop
    return Clock(method, scenario, Rounds(rounds, participation), Seeds(seed), Maps(client_map, client_map))


def beginning(method: Method, scenario: Scenario) -> World:
    return clock(method, scenario).beginning()


def ran(method: Method, scenario: Scenario, **options: Any) -> Ran:
    world = beginning(method, scenario)
    rows = [dict(step) for step in clock(method, scenario, **options).run(world)]
    return Ran(rows, only(world))


def run(method: Method, scenario: Scenario, **options: Any) -> Rows:
    return ran(method, scenario, **options).rows


def final_world(method: Method, scenario: Scenario, **options: Any) -> World:
    return ran(method, scenario, **options).world


def only(world: World) -> World:
    """A world of one federation without its axis."""
    return World(world.timestep, tree.take(world.clients, 0), tree.take(world.server, 0))


class BrokenPromiseError(FedadeError):
    """A method does not do what every method promises."""


def require(condition: Any, reason: str) -> None:
    if not condition:
        raise BrokenPromiseError(reason)


def line_of(error: BaseException, method: object) -> str:
    """Where in a method's own text an error came from, as ` (file.py, line 7, in observe)`; nothing if not there."""
    modules = (sys.modules.get(kind.__module__) for kind in type(method).__mro__ if kind not in Method.__mro__)
    own = {getattr(module, "__file__", None) for module in modules}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


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


class OnlyRecordable(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations that no CUDA graph can record."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function in UNRECORDABLE:
            raise BrokenPromiseError(f"{function} {UNRECORDABLE[function]}, which a CUDA graph cannot record")
        return function(*arguments, **(options or {}))


@dataclass(frozen=True)
class AsIfRecorded(Direct):
    """Runs steps as they are. As in a recording, what is made once is made when a step is first called."""

    def begin(self, steps: Steps) -> Running:
        """Steps that are watched from their second call on."""
        running = super().begin(steps)
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
