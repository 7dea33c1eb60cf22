"""One client of a corrupted stream, as tests of test-time methods show it to them."""

from typing import Any

import numpy as np
import torch

from fedade.core.method import Method
from fedade.core.scenario import Scenario

from ..helpers import Seen, begin, observe


def batch(scenario: Scenario, timestep: int = 4) -> Seen:
    """What the first client sees."""
    inputs = scenario.streams.draw(np.arange(1), timestep).inputs[0]
    return Seen(inputs, torch.tensor(timestep), torch.tensor(timestep))


def after(method: Method, scenario: Scenario, *timesteps: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """The client's state and last plan after these timesteps."""
    client, plan = begin(method, scenario.deployment), {}
    for timestep in timesteps:
        client, plan = observe(method, scenario.deployment, client, (), batch(scenario, timestep))
    return client, plan
