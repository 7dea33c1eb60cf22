"""Running methods in tests: short scenarios on the default data."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock, Maps, Rounds, World, beginning

ScenarioFactory = Callable[..., Scenario]
Rows = list[dict[str, NDArray[Any]]]


def clock(
    method: Method,
    scenario: Scenario,
    seed: int = 0,
    rounds: int = 1,
    participation: float = 0.5,
    vectorised: bool = True,
) -> Clock:
    """A clock for a method and a scenario."""
    client_map = Vectorised() if vectorised else loop
    return Clock(method, scenario, Rounds(rounds, participation), Seeds(seed), Maps(client_map, client_map))


def run(method: Method, scenario: Scenario, **options: Any) -> Rows:
    """The columns of every timestep."""
    return [dict(rows) for rows in clock(method, scenario, **options).run(beginning(method, scenario))]


def final_world(method: Method, scenario: Scenario, **options: Any) -> World:
    """The world of the only federation after the last timestep."""
    world = beginning(method, scenario)
    for _ in clock(method, scenario, **options).run(world):
        pass
    return only(world)


def only(world: World) -> World:
    """A world of one federation without its axis."""
    return World(world.timestep, tree.take(world.clients, 0), tree.take(world.server, 0))


def first_view(method: Method, scenario: Scenario) -> Any:
    """What the first client observes at the first timestep."""
    runner, everyone = clock(method, scenario), np.arange(scenario.streams.num_clients)[None]
    return tree.take(runner._view(everyone, runner._draw(everyone, 1), 1), (0, 0))


def mean(rows: Rows, name: str) -> float:
    """Mean of a column over clients and timesteps."""
    return float(np.mean([step[name] for step in rows]))
