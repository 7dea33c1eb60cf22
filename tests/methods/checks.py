"""What the tests of several methods ask for in the same words."""

import numpy as np
import torch

from fedade.core.deployment import Deployment
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.split import Parameters
from fedade.maths.losses import class_weights, estimated_risk
from fedade.parts.rates import RateBounds

from ..helpers import ScenarioFactory, Seen, run

RATE = RateBounds(low=1e-3, mid=5e-2, high=1e-1)
"""Large enough to see what a step does."""


def assert_maps_agree(method: Method, scenario: Scenario) -> None:
    """The same numbers whether clients run together or one after the other."""
    for together, alone in zip(run(method, scenario), run(method, scenario, vectorised=False), strict=True):
        assert set(together) == set(alone)
        for name, values in together.items():
            np.testing.assert_allclose(values, alone[name], atol=2e-4, err_msg=name)


def assert_finite_on_one_sample(method: Method, scenario_factory: ScenarioFactory) -> None:
    """A batch of one sample has one class only, and no variance."""
    for rows in run(method, scenario_factory(num_clients=4, num_timesteps=2, samples=1)):
        for name, values in rows.items():
            assert np.isfinite(values).all(), name


def first_batches(scenario: Scenario, timestep: int = 1) -> Seen:
    """What all clients see at a timestep, stacked."""
    clients = np.arange(scenario.streams.num_clients)
    batch = scenario.streams.draw(clients, timestep)
    times, keys = torch.full((len(clients),), timestep), torch.arange(len(clients)) + 1000 * timestep
    return Seen(batch.inputs, times, keys, batch.labels, batch.prior.float())


def of_client(seen: Seen, client: int) -> Seen:
    """One client's view with labels."""
    return Seen(*(part[client] for part in seen))


def unlabelled(seen: Seen) -> Seen:
    """The same view as everyone else gets it."""
    return Seen(seen.inputs, seen.timestep, seen.key)


def sgd_step(
    deployment: Deployment, moving: Parameters, fixed: Parameters, prior: torch.Tensor, rate: float
) -> dict[str, torch.Tensor]:
    """One step on the estimated risk by plain autograd, to compare with."""
    with torch.enable_grad():
        leaves = {name: value.detach().clone().requires_grad_() for name, value in moving.items()}
        inputs, labels = deployment.reference
        logits = deployment.network.logits({**fixed, **leaves}, inputs)
        estimated_risk(logits, labels, class_weights(prior, labels)).backward()
    return {name: (leaf - rate * leaf.grad).detach() for name, leaf in leaves.items()}


def assert_close(found: Parameters, expected: Parameters) -> None:
    """Equal tensor by tensor, up to rounding."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4)
