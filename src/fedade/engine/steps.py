"""What one federation does within a timestep, as functions of tensors alone.

Nothing here reads a value back from the device, so that a step can be mapped over federations and captured as a CUDA
graph. Clients are those that are awake in the timestep, along the leading axis. Contexts are built inside the mapped
functions: what all clients share is closed over, and only tensors are mapped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core import tree
from fedade.core.context import ClientContext, KnownPass, Passes, RoundContext, Truth
from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.method import FederatedMethod, Method, Shared, with_rounds
from fedade.core.network import PassCounter
from fedade.core.normalisation import FROZEN
from fedade.core.tree import Tree
from fedade.engine.client import observed
from fedade.engine.scoring import Quality, quality


class ClientMap(Protocol):
    """Runs the function of one client for every row of its arguments."""

    def __call__(self, function: Callable[..., Tree], *arguments: Tree) -> Tree: ...


@dataclass(frozen=True)
class Maps:
    """Which map runs what: passes with common weights, steps that give every client its own, and whole federations."""

    forward: ClientMap
    update: ClientMap
    federations: ClientMap = tree.each_row
    personal: ClientMap | None = None
    """Runs the personal step, which may read all of a client's labelled data at once; None: as `forward`."""


class StepBatch(NamedTuple):
    """What a timestep brings to a client; or to all, `[A, ...]`."""

    inputs: Tensor
    labels: Tensor
    prior: Tensor
    timestep: Tensor
    key: Tensor
    features: Tensor | tuple[()] = ()
    """What the deployed body makes of the inputs, where that is known."""
    references: Tensor | tuple[()] = ()
    """Rows of the client's own labelled data, where it has any, `[m]`."""
    rates: Mapping[str, Tensor] | tuple[()] = ()
    """`Method.rates` of the client's federation, where federations have different ones."""


class Scores(NamedTuple):
    """How well a client predicts; or all of them, `[A]`."""

    accuracy: Tensor
    finite: Tensor
    """Whether all predictions are numbers."""
    quality: Quality | tuple[()] = ()
    """Of scores after adaptation."""


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
    labelled: Reference | None = None
    """What `StepBatch.references` are rows of."""
    labelled_features: Tensor | None = None
    """What the deployed body makes of it, where the method asks."""
    observe_passes: float = field(default=0.0, init=False)
    personalise_passes: float = field(default=0.0, init=False)
    exchange_cost: ExchangeCost = field(default=ExchangeCost(), init=False)

    def score(self, clients: Tree, shared: Shared, batch: StepBatch) -> Scores:
        def score(state: Tree, own: StepBatch) -> Scores:
            return _last_scores(self._method_of(own), self._scoring(shared, own), state, own.labels)

        scores: Scores = self.maps.forward(score, clients, batch)
        return scores

    def observe(self, clients: Tree, shared: Shared, batch: StepBatch) -> tuple[Tree, Tree, tuple[Scores, ...]]:
        """New states and plans of the timestep, and the scores before; and after, of a method without rounds. In one
        call, because a pass that both need is then made once."""
        counter = PassCounter()

        def score_and_observe(state: Tree, own: StepBatch) -> tuple[Tree, Tree, tuple[Scores, ...]]:
            counter.add_call()
            method, scoring = self._method_of(own), self._scoring(shared, own)
            before = _scores_of(method.predict(scoring, state), own.labels)
            moved, plan, after = observed(method, scoring, state, self._truth(own), counter)
            if method.has_rounds:
                return moved, plan, (before,)
            return moved, plan, (before, _last_scores(method, after, moved, own.labels))

        # A method without rounds does all its training here.
        client_map = self.maps.forward if self.method.has_rounds else self.maps.update
        outcome: tuple[Tree, Tree, tuple[Scores, ...]] = client_map(score_and_observe, clients, batch)
        self.observe_passes = counter.per_client
        return outcome

    def exchange(
        self,
        clients: Tree,
        plans: Tree,
        shared: Shared,
        batch: StepBatch,
        participants: Tensor,
        keys: Tensor,
        sizes: Tensor,
    ) -> tuple[Tree, Tree, Shared]:
        """One round of some rows, whose states and plans are written in place, and what is broadcast after it."""
        method, before, after = self._federated(), PassCounter(), PassCounter()
        states, planned, seen = tree.take((clients, plans, batch._replace(features=())), participants)
        seen = seen._replace(key=keys)

        def train(state: Tree, plan: Tree, own: StepBatch) -> tuple[Tree, Tree, Tree]:
            return self._federated(own).local_round(self._in_round(before, own, shared), state, plan)

        moved, planned, uplinks = self.maps.update(train, states, planned, seen)
        broadcast, downlinks = method.aggregate(self.deployment, shared, uplinks, sizes)
        if not method.everyone_personalises:
            moved, planned = self._personalised(after, broadcast, moved, planned, seen, downlinks)
        self.exchange_cost = ExchangeCost(
            tree.num_bytes(uplinks) // len(participants),
            tree.num_bytes(broadcast) + tree.num_bytes(downlinks) // len(participants),
            before.per_client + after.per_client,
        )
        tree.put(clients, participants, moved)
        tree.put(plans, participants, planned)
        return clients, plans, broadcast

    def personalise(self, clients: Tree, plans: Tree, shared: Shared, batch: StepBatch) -> tuple[Tree, Tree]:
        """What everyone does after the last round, participants or not."""
        counter = PassCounter()
        moved = self._personalised(counter, shared, clients, plans, batch._replace(features=()))
        self.personalise_passes = counter.per_client
        return moved

    def _method_of(self, own: StepBatch) -> Method:
        """The method at the rates of the client's federation."""
        return self.method.at_rates(own.rates) if isinstance(own.rates, Mapping) else self.method

    def _federated(self, own: StepBatch | None = None) -> FederatedMethod:
        method = with_rounds(self.method if own is None else self._method_of(own))
        assert method is not None  # noqa: S101 - the clock asks no other
        return method

    def _personalised(
        self, counter: PassCounter, shared: Shared, clients: Tree, plans: Tree, batch: StepBatch, downlinks: Tree = ()
    ) -> tuple[Tree, Tree]:
        def personalise(state: Tree, plan: Tree, own: StepBatch, downlink: Tree) -> tuple[Tree, Tree]:
            return self._federated(own).personalise(self._in_round(counter, own, shared, downlink), state, plan)

        client_map = self.maps.personal or self.maps.forward
        moved: tuple[Tree, Tree] = client_map(personalise, clients, plans, batch, downlinks)
        return moved

    def _scoring(self, shared: Shared, own: StepBatch) -> ClientContext:
        """A client as it is scored: without labels, and its passes, which are the experiment's, are not counted."""
        passes: Passes = {}
        if isinstance(own.features, Tensor):
            passes["deployed", FROZEN] = KnownPass(own.inputs, self.deployment.parameters, own.features)
        seen = own.inputs, own.timestep, own.key
        return ClientContext(self.deployment, *seen, shared, passes=passes, own_reference=self._reference(own))

    def _in_round(self, counter: PassCounter, own: StepBatch, shared: Shared, downlink: Tree = ()) -> RoundContext:
        counter.add_call()
        seen, told = (own.inputs, own.timestep, own.key), (shared, self._truth(own))
        deployment, reference = self.deployment.counting(counter), self._reference(own)
        return RoundContext(deployment, *seen, *told, own_reference=reference, downlink=downlink)

    def _reference(self, own: StepBatch) -> ReferenceRows | None:
        if self.labelled is None or not isinstance(own.references, Tensor):
            return None
        return ReferenceRows(self.labelled, own.references, self.labelled_features)

    def _truth(self, own: StepBatch) -> Truth | None:
        return Truth(own.labels, own.prior) if self.method.card.oracle else None


def _last_scores(method: Method, ctx: ClientContext, state: Tree, labels: Tensor) -> Scores:
    probabilities = method.predict(ctx, state)
    return _scores_of(probabilities, labels)._replace(quality=quality(probabilities, labels))


def _scores_of(probabilities: Tensor, labels: Tensor) -> Scores:
    hits = probabilities.argmax(-1) == labels
    return Scores(hits.mean(-1, dtype=torch.float64), probabilities.isfinite().all())
