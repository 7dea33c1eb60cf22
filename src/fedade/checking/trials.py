"""Short runs of one method, and scenarios for them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, World
from fedade.engine.steps import Maps
from fedade.scenarios.building import build_scenario
from fedade.scenarios.settings import ScenarioSettings

Rows = list[dict[str, NDArray[Any]]]
SMALL = {"num_clients": 8, "num_timesteps": 4, "samples": 20, "train_size": 350, "reference_size": 50}
"""Settings of a scenario on the default data that takes no second."""


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
