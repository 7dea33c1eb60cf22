"""Running methods in tests: short scenarios on the default data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth
from fedade.core.deployment import Deployment
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock, Maps, Rounds, World

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


def beginning(method: Method, scenario: Scenario) -> World:
    """The world of one federation before the first timestep."""
    return clock(method, scenario).beginning()


def context(deployment: Deployment, inputs: Tensor, **known: Any) -> ClientContext:
    """What a method is given of a batch, in the first timestep unless told otherwise."""
    return ClientContext(deployment, inputs, **{"timestep": torch.tensor(1), "key": torch.tensor(5)} | known)


def round_context(deployment: Deployment, inputs: Tensor, **known: Any) -> RoundContext:
    """What a participant's method is given in a round."""
    return RoundContext(deployment, inputs, **{"timestep": torch.tensor(1), "key": torch.tensor(5)} | known)


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


def first_context(method: Method, scenario: Scenario, **known: Any) -> ClientContext:
    """What the first client observes at the first timestep."""
    batch = scenario.streams.draw(np.arange(1), 1)
    truth = Truth(batch.labels[0], batch.prior[0]) if method.card.oracle else None
    key = torch.tensor(Seeds(0).number("observe", client=0, timestep=1))
    return context(scenario.deployment, batch.inputs[0], key=key, truth=truth, **known)


def mean(rows: Rows, name: str) -> float:
    """Mean of a column over clients and timesteps."""
    return float(np.mean([step[name] for step in rows]))
