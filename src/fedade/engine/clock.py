"""One run of one method: the protocol, top to bottom."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import tree
from fedade.core.cost import counting_passes
from fedade.core.errors import FedadeError
from fedade.core.method import FederatedMethod, Method, Observation, OracleObservation
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.core.trace import Rows
from fedade.core.tree import Tree


class ClientMap(Protocol):
    """Runs the function of one client for every row of its arguments."""

    def __call__(self, function: Callable[..., Tree], *arguments: Tree) -> Tree: ...


@dataclass(frozen=True)
class Rounds:
    """How clients and server meet within a timestep."""

    per_timestep: int
    participation: float
    """Share of the clients that take part in a round."""


@dataclass(frozen=True)
class Maps:
    """Which map runs what: passes with common weights, and steps that give every client its own."""

    forward: ClientMap
    update: ClientMap


@dataclass
class World:
    """All that exists between two timesteps; owned by the clock, which alone writes to it."""

    timestep: int
    clients: Tree
    server: Tree


def beginning(method: Method, scenario: Scenario) -> World:
    """The world before the first timestep."""
    deployment = scenario.deployment
    with torch.no_grad():
        clients = tree.repeat(method.init_client(deployment), scenario.streams.num_clients)
        server = method.init_server(deployment) if isinstance(method, FederatedMethod) else ()
    return World(0, clients, server)


@dataclass(frozen=True)
class Clock:
    """Runs a method through a scenario."""

    method: Method
    scenario: Scenario
    rounds: Rounds
    seeds: Seeds
    maps: Maps
    score_fresh: bool = False
    """Also score on an independent draw of the same timestep."""

    def run(self, world: World) -> Iterator[Rows]:
        """Advance the world to the end, yielding the rows of each timestep once the world stands behind it."""
        while world.timestep < self.scenario.streams.num_timesteps:
            with torch.no_grad():
                rows = self._step(world, world.timestep + 1)
            world.timestep += 1
            yield rows

    def _step(self, world: World, timestep: int) -> Rows:
        everyone = np.arange(self.scenario.streams.num_clients)
        batch = self.scenario.streams.draw(everyone, timestep)
        _refuse_broken(batch, timestep)
        observation = self._view(batch, timestep)
        before = self._accuracy(world, batch)

        # A local method does all its training here.
        observing = self.maps.forward if isinstance(self.method, FederatedMethod) else self.maps.update
        (observed, plan), passes = _measured(
            observing,
            lambda client, seen: self.method.observe(self.scenario.deployment, client, world.server, seen),
            world.clients,
            observation,
        )
        # Cloned, because a map may return views of common memory, and participants write their rows.
        world.clients, plan = tree.tree_map(torch.clone, (observed, plan))
        took_part = np.zeros(len(everyone), dtype=np.int64)
        sent, received = np.zeros(len(everyone), dtype=np.int64), np.zeros(len(everyone), dtype=np.int64)
        spent = np.full(len(everyone), passes)
        if isinstance(self.method, FederatedMethod):
            for number in range(self.rounds.per_timestep):
                chosen = self._participants(self.method, timestep, number)
                up, down, passes = self._round(self.method, world, plan, observation, chosen, timestep, number)
                took_part[chosen] += 1
                sent[chosen] += up
                received[chosen] += down
                spent[chosen] += passes

        rows = {
            "client": everyone,
            "timestep": np.full(len(everyone), timestep),
            "n": np.full(len(everyone), batch.labels.shape[1]),
            "accuracy_pre": before,
            "accuracy_post": self._accuracy(world, batch),
            "participated": took_part,
            "bytes_sent": sent,
            "bytes_received": received,
            "state_bytes": np.full(len(everyone), tree.num_bytes(world.clients) // len(everyone)),
            "passes": spent,
            "severity": _array(batch.severity),
            "true_prior": _array(batch.prior.float()),
        }
        if self.score_fresh:
            rows["accuracy_fresh"] = self._accuracy(world, self.scenario.streams.draw(everyone, timestep, "fresh"))
        return rows | {name: _array(value) for name, value in plan.items()}

    def _participants(self, method: FederatedMethod, timestep: int, number: int) -> NDArray[np.int64]:
        clients = self.scenario.streams.num_clients
        count = max(1, round(self.rounds.participation * clients))
        address = {"round": number} if method.fixed_participants else {"round": number, "timestep": timestep}
        chosen = self.seeds.generator("participants", **address).choice(clients, count, replace=False)
        return np.sort(chosen)

    def _round(
        self,
        method: FederatedMethod,
        world: World,
        plan: Tree,
        observation: Any,
        chosen: NDArray[np.int64],
        timestep: int,
        number: int,
    ) -> tuple[int, int, float]:
        """One exchange; returns the bytes that each participant sent and received, and its forward passes."""
        deployment, shared = self.scenario.deployment, world.server
        rows = torch.from_numpy(chosen).to(observation.inputs.device)
        seen = tree.take(observation, rows)
        keys = self._keys("local", chosen, rows.device, timestep=timestep, round=number)
        (clients, plans, uplinks), passes = _measured(
            self.maps.update,
            lambda client, own, looked, key: method.local_round(deployment, client, own, shared, looked, key),
            tree.take(world.clients, rows),
            tree.take(plan, rows),
            seen,
            keys,
        )
        sizes = torch.full((len(chosen),), float(observation.inputs.shape[1]), device=rows.device)
        world.server, downlink = method.aggregate(deployment, shared, uplinks, sizes)
        (clients, plans), more = _measured(
            self.maps.forward,
            lambda client, own, told, looked, key: method.personalise(
                deployment, client, own, world.server, told, looked, key
            ),
            clients,
            plans,
            downlink,
            seen,
            keys,
        )
        tree.put(world.clients, rows, clients)
        tree.put(plan, rows, plans)
        return (
            tree.num_bytes(uplinks) // len(chosen),
            tree.num_bytes(world.server) + tree.num_bytes(downlink) // len(chosen),
            passes + more,
        )

    def _view(self, batch: Batch, timestep: int) -> Any:
        device = batch.inputs.device
        times = torch.full((len(batch.inputs),), timestep, device=device)
        keys = self._keys("observe", np.arange(len(batch.inputs)), device, timestep=timestep)
        if self.method.card.oracle:
            return OracleObservation(batch.inputs, times, keys, batch.labels, batch.prior)
        return Observation(batch.inputs, times, keys)

    def _keys(self, purpose: str, clients: NDArray[np.int64], device: torch.device, **address: int) -> Tensor:
        """One addressed number per client, from which methods derive all their draws."""
        numbers = [self.seeds.number(purpose, client=client, **address) for client in clients.tolist()]
        return torch.tensor(numbers, device=device)

    def _accuracy(self, world: World, batch: Batch) -> NDArray[Any]:
        probabilities = self.maps.forward(
            lambda client, inputs: self.method.predict(self.scenario.deployment, client, world.server, inputs),
            world.clients,
            batch.inputs,
        )
        _refuse_divergence(probabilities, world.timestep + 1)
        hits = probabilities.argmax(-1) == batch.labels
        return _array(hits.double().mean(-1))


def _measured(client_map: ClientMap, function: Callable[..., Tree], *arguments: Tree) -> tuple[Tree, float]:
    """What a map returns, and the forward passes that one client made."""
    with counting_passes() as counter:

        def counted(*row: Tree) -> Tree:
            counter.calls += 1
            return function(*row)

        result = client_map(counted, *arguments)
    return result, counter.per_client


def _refuse_broken(batch: Batch, timestep: int) -> None:
    if batch.inputs.is_floating_point():
        whole = batch.inputs.isfinite().flatten(1).all(1)
        if not whole.all():
            client = int((~whole).nonzero()[0])
            raise FedadeError(
                f"client {client}, timestep {timestep}: the batch holds NaN or infinite values; clean the stream's data"
            )


def _refuse_divergence(probabilities: Tensor, timestep: int) -> None:
    finite = probabilities.isfinite().flatten(1).all(1)
    if not finite.all():
        client = int((~finite).nonzero()[0])
        raise FedadeError(
            f"client {client}, timestep {timestep}: its predictions are not finite, the model diverged; "
            "lower its learning rate (for most methods method.rate)"
        )


def _array(values: Tensor) -> NDArray[Any]:
    return np.asarray(values.cpu().numpy())
