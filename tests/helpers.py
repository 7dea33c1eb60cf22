"""Running methods in tests: short scenarios on the default data."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedade.checking.trials import Rows, beginning, clock, final_world, only, run
from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth, context_before_first_batch
from fedade.core.deployment import Deployment
from fedade.core.method import FederatedMethod, Method, Plan
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.methods import METHODS, settings_of
from fedade.scenarios.building import Testbed

__all__ = ["Rows", "beginning", "clock", "final_world", "only", "run"]

ScenarioFactory = Callable[..., Scenario]


class Seen(NamedTuple):
    """A batch as tests hand it to methods: of one client, or stacked over clients."""

    inputs: Tensor
    timestep: Tensor
    key: Tensor
    labels: Tensor | tuple[()] = ()
    prior: Tensor | tuple[()] = ()

    def truth(self, method: Method) -> Truth | None:
        """For oracles only."""
        return Truth(self.labels, self.prior) if method.card.oracle else None


QUICK = {
    "rate": {"low": 1e-3, "mid": 1e-2, "high": 3e-2},
    "training_rounds": 3,
    "views": 2,
    "memory_size": 16,
    "warm_up": 20,
    "attention_steps": 5,
}
"""Rates at which a few steps show in every parameter, and less of what merely takes time."""

QUICKER = {
    **dict.fromkeys(("joint_epochs", "personal_epochs", "head_epochs", "body_epochs", "global_epochs"), 1),
    **dict.fromkeys(("balanced_epochs", "epochs", "steps"), 1),
    "training_rounds": 1,
    "attention_steps": 2,
    "mixing_steps": 3,
}
"""Fewer steps of the same kind, where two ways of taking them are compared."""


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"fed-ade-plus in common": ("fed-ade-plus", {"each_sample": False})}
"""Methods that go another way through the kernels with a part switched off."""


def quick(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """A registered method, or one of those above, with quick settings, and with those of other settings that it has."""
    method, asked = VARIANTS.get(name, (name, {}))
    known, given = settings_of(method), {**QUICK, **(settings or {}), **asked}
    return METHODS[method](**{key: value for key, value in given.items() if key in known})


def context(deployment: Deployment, inputs: Tensor, **known: Any) -> ClientContext:
    """What a method is given of a batch, in the first timestep unless told otherwise."""
    return ClientContext(deployment, inputs, **{"timestep": torch.tensor(1), "key": torch.tensor(5)} | known)


def begin(method: Method, deployment: Deployment) -> Any:
    """State of a client before the first timestep."""
    return method.begin(context_before_first_batch(deployment))


def observe(method: Method, deployment: Deployment, state: Any, shared: Any, seen: Seen) -> tuple[Any, Plan]:
    """A client's timestep."""
    ctx = ClientContext(deployment, *seen[:3], shared=shared or {}, truth=seen.truth(method))
    return method.observe(ctx, state)


def predict(method: Method, deployment: Deployment, state: Any, shared: Any, inputs: Tensor) -> Tensor:
    """A client's class probabilities."""
    return method.predict(context(deployment, inputs, shared=shared or {}), state)


def local_round(
    method: FederatedMethod, deployment: Deployment, state: Any, plan: Plan, shared: Any, seen: Seen, key: Tensor
) -> tuple[Any, Plan, Any]:
    """A participant's work before the exchange."""
    ctx = RoundContext(deployment, seen.inputs, seen.timestep, key, shared, seen.truth(method))
    return method.local_round(ctx, state, plan)


def personalise(
    method: FederatedMethod,
    deployment: Deployment,
    state: Any,
    plan: Plan,
    shared: Any,
    downlink: Any,
    seen: Seen,
    key: Tensor,
) -> tuple[Any, Plan]:
    """A participant's work after the broadcast."""
    truth = seen.truth(method)
    ctx = RoundContext(deployment, seen.inputs, seen.timestep, key, shared, truth, downlink=downlink)
    return method.personalise(ctx, state, plan)


def first_batch(scenario: Scenario) -> Seen:
    """What the first client sees at the first timestep."""
    batch, key = scenario.streams.draw(np.arange(1), 1), Seeds(0).number("observe", client=0, timestep=1)
    return Seen(batch.inputs[0], torch.tensor(1), torch.tensor(key), batch.labels[0], batch.prior[0])


def mean(rows: Rows, name: str) -> float:
    """Mean of a column over clients and timesteps."""
    return float(np.mean([step[name] for step in rows]))


def with_streams(scenario: Scenario, schedule: str, seed: int) -> Scenario:
    """The same deployment and examples, with the streams of another schedule and seed."""
    old = scenario.streams
    held_out = scenario.references.pool if scenario.references else scenario.deployment.reference
    testbed = Testbed(
        old.settings,
        scenario.deployment,
        old.pool_at,
        old.rows_by_class,
        old.corruptions,
        held_out,
        old.device,
        {},
        old.features,
    )
    return testbed.scenario(schedule, seed)


def equal(first: Any, second: Any) -> bool:
    """Whether two trees are the same bits."""
    return all(torch.equal(one, other) for one, other in zip(tree.leaves(first), tree.leaves(second), strict=True))
