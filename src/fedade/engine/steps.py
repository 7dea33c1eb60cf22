"""What one federation does within a timestep, as functions of tensors alone.

Nothing here reads a value back from the device, so that a step can be mapped over federations and captured as a CUDA
graph. Clients are those that are awake in the timestep, along the leading axis.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core import tree
from fedade.core.cost import counting_passes
from fedade.core.deployment import Deployment
from fedade.core.known_passes import Constants, remembering_passes
from fedade.core.method import FederatedMethod, Method
from fedade.core.tree import Tree


class ClientMap(Protocol):
    """Runs the function of one client for every row of its arguments."""

    def __call__(self, function: Callable[..., Tree], *arguments: Tree) -> Tree: ...


@dataclass(frozen=True)
class Maps:
    """Which map runs what: passes with common weights, steps that give every client its own, and whole federations."""

    forward: ClientMap
    update: ClientMap
    federations: ClientMap = tree.each_row


class Scores(NamedTuple):
    """How well a client predicts; or all of them, `[A]`."""

    accuracy: Tensor
    finite: Tensor
    """Whether all predictions are numbers."""


class ExchangeCost(NamedTuple):
    """What a round costs each participant."""

    sent: int = 0
    received: int = 0
    passes: float = 0.0


@dataclass
class Steps:
    """The steps of a method; costs depend on shapes alone and are noted whenever a step is traced or run."""

    method: Method
    deployment: Deployment
    maps: Maps
    observe_passes: float = field(default=0.0, init=False)
    exchange_cost: ExchangeCost = field(default=ExchangeCost(), init=False)
    constants: Constants = field(init=False)
    recalls_features: bool = field(default=True, init=False)
    """Whether features of the deployed body were of use when they were last given."""

    def __post_init__(self) -> None:
        self.constants = Constants((*self.deployment.parameters.values(), self.deployment.reference.inputs))

    def score(self, clients: Tree, server: Tree, inputs: Tensor, labels: Tensor) -> Scores:
        """Accuracy on batches, and whether the predictions are finite."""
        scores: Scores = self.maps.forward(
            lambda client, own, answers: self._scores(client, server, own, answers), clients, inputs, labels
        )
        return scores

    def observe(
        self, clients: Tree, server: Tree, observation: Any, labels: Tensor, features: Tensor | tuple[()] = ()
    ) -> tuple[Tree, Tree, tuple[Scores, ...]]:
        """New states and plans of the timestep, and the scores before; and after, of a method without rounds.

        In one call, because a pass that both need is then made once. `features`, where they are known, are what the
        deployed body makes of the inputs.
        """
        # A local method does all its training here.
        federated = isinstance(self.method, FederatedMethod)

        def look(
            client: Tree, seen: Any, answers: Tensor, known: Tensor | tuple[()]
        ) -> tuple[Tree, Tree, tuple[Scores, ...]]:
            with remembering_passes(self.constants) as memory:
                if isinstance(known, Tensor):
                    self.deployment.network.tell(self.deployment.parameters, seen.inputs, known)
                scores = [self._scores(client, server, seen.inputs, answers)]
                moved, plan = self.method.observe(self.deployment, client, server, seen)
                if not federated:
                    scores.append(self._scores(moved, server, seen.inputs, answers))
            self.recalls_features = memory.recalled
            return moved, plan, tuple(scores)

        found, self.observe_passes = _measured(
            self.maps.forward if federated else self.maps.update, look, clients, observation, labels, features
        )
        # Cloned, because a map may return views of common memory, and participants write their rows.
        cloned: tuple[Tree, Tree, tuple[Scores, ...]] = tree.tree_map(torch.clone, found)
        return cloned

    def _scores(self, client: Tree, server: Tree, inputs: Tensor, labels: Tensor) -> Scores:
        """Of one client; the experiment's passes, not the method's."""
        with counting_passes():
            probabilities = self.method.predict(self.deployment, client, server, inputs)
        hits = probabilities.argmax(-1) == labels
        return Scores(hits.double().mean(-1), probabilities.isfinite().all())

    def exchange(
        self, clients: Tree, plan: Tree, server: Tree, observation: Any, chosen: Tensor, keys: Tensor, sizes: Tensor
    ) -> tuple[Tree, Tree, Tree]:
        """One round of the `chosen` rows, whose states and plans are written in place, and the server after it."""
        method, deployment = self.method, self.deployment
        assert isinstance(method, FederatedMethod)  # noqa: S101 - the clock asks no other
        seen = tree.take(observation, chosen)
        (moved, plans, uplinks), before = _measured(
            self.maps.update,
            lambda client, own, looked, key: method.local_round(deployment, client, own, server, looked, key),
            tree.take(clients, chosen),
            tree.take(plan, chosen),
            seen,
            keys,
        )
        broadcast, downlink = method.aggregate(deployment, server, uplinks, sizes)
        (moved, plans), after = _measured(
            self.maps.forward,
            lambda client, own, told, looked, key: method.personalise(
                deployment, client, own, broadcast, told, looked, key
            ),
            moved,
            plans,
            downlink,
            seen,
            keys,
        )
        self.exchange_cost = ExchangeCost(
            tree.num_bytes(uplinks) // len(chosen),
            tree.num_bytes(broadcast) + tree.num_bytes(downlink) // len(chosen),
            before + after,
        )
        tree.put(clients, chosen, moved)
        tree.put(plan, chosen, plans)
        return clients, plan, broadcast


def _measured(client_map: ClientMap, function: Callable[..., Tree], *arguments: Tree) -> tuple[Tree, float]:
    """What a map returns, and the forward passes that one client made."""
    with counting_passes() as counter:

        def counted(*row: Tree) -> Tree:
            counter.add(calls=1)
            return function(*row)

        result = client_map(counted, *arguments)
    return result, counter.per_client
