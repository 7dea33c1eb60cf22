"""The contract that every method keeps, in the simulator and on a network alike.

Every client function is a function of **one** client: pure, tensors in and tensors out. `client_map` runs it for many.
State, plan, uplink and downlink are trees of tensors; the engine never looks inside them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.tree import Tree


class Observation(NamedTuple):
    """What a method may see of a timestep: inputs and the time, never labels."""

    inputs: Tensor
    timestep: Tensor
    key: Tensor
    """An addressed random number; `fedade.maths.counter` turns it into as many as a method needs."""


class OracleObservation(NamedTuple):
    """What only methods marked as oracles see."""

    inputs: Tensor
    timestep: Tensor
    key: Tensor
    labels: Tensor
    prior: Tensor
    """True class distribution that the labels were drawn from."""


@dataclass(frozen=True)
class Card:
    """What a method is and what it needs, as `fedade list methods` shows it."""

    summary: str
    paper: str
    oracle: bool = False
    """Sees labels or true priors; never ranked."""
    reference: bool = False
    """Uses the labelled reference set."""
    keeps_body: bool = False
    """Never moves the deployed body, nor its statistics: what that makes of an input is the same at all times."""


@runtime_checkable
class Method(Protocol):
    """What a client does on its own: all there is to a local method."""

    @property
    def card(self) -> Card:
        """What the method is and needs."""
        ...

    def init_client(self, deployment: Deployment) -> Tree:
        """State of one client before the first timestep."""
        ...

    def observe(
        self, deployment: Deployment, client: Tree, shared: Tree, observation: Any
    ) -> tuple[Tree, dict[str, Tensor]]:
        """Once per timestep, every client: the new state and the plan (rate, prior, signals) for this timestep.

        The plan lives until the timestep ends. Its scalars become columns of the trace, and so does its `prior`.
        """
        ...

    def predict(self, deployment: Deployment, client: Tree, shared: Tree, inputs: Tensor) -> Tensor:
        """Class probabilities `[n, K]` of one client."""
        ...


@runtime_checkable
class FederatedMethod(Method, Protocol):
    """A method with rounds, in which participants exchange something with the server."""

    @property
    def fixed_participants(self) -> bool:
        """Whether round r selects the same clients at every timestep, as the released code does."""
        ...

    def init_server(self, deployment: Deployment) -> Tree:
        """What the server holds and has broadcast at t = 0; clients receive it as `shared`."""
        ...

    def local_round(
        self, deployment: Deployment, client: Tree, plan: Tree, shared: Tree, observation: Any, key: Tensor
    ) -> tuple[Tree, Tree, Tree]:
        """A participant's work before the exchange: new state, plan, and the uplink it sends.

        All randomness comes from the key, which is its own for every client, timestep and round.
        """
        ...

    def aggregate(self, deployment: Deployment, server: Tree, uplinks: Tree, weights: Tensor) -> tuple[Tree, Tree]:
        """The server's work: what it now broadcasts to all, and what it tells each participant (may be empty)."""
        ...

    def personalise(
        self,
        deployment: Deployment,
        client: Tree,
        plan: Tree,
        shared: Tree,
        downlink: Tree,
        observation: Any,
        key: Tensor,
    ) -> tuple[Tree, Tree]:
        """A participant's work after the broadcast, with the key of the round: new state and plan."""
        ...
