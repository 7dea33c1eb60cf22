"""A run of one method: the protocol, top to bottom."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import tree
from fedade.core.devices import to_device
from fedade.core.method import FederatedMethod, Method, Observation, OracleObservation
from fedade.core.scenario import Batch, Scenario, stacked
from fedade.core.seeds import Seeds
from fedade.core.trace import Rows
from fedade.core.tree import Tree
from fedade.engine.attendance import Awake, Rounds, awake
from fedade.engine.execution import Direct, Execution, Running
from fedade.engine.pending import PendingRows, collect
from fedade.engine.steps import Maps, Scores, Steps

__all__ = ["Clock", "Federation", "Maps", "Rounds", "World", "beginning"]


class Federation(NamedTuple):
    """Clients with streams of their own, a server, and the seeds of all their draws."""

    scenario: Scenario
    seeds: Seeds
    method: Method | None = None
    """What makes its first states, where that is not the clock's: a method with the same steps that differs only in
    what its clients begin with."""


@dataclass
class World:
    """All that exists between two timesteps; owned by the clock, which alone writes to it."""

    timestep: int
    clients: Tree
    """Every client of every federation, `[F, N, ...]`."""
    server: Tree
    """`[F, ...]`"""


def beginning(method: Method, scenario: Scenario, *beside: Method) -> World:
    """The world before the first timestep: a federation for the method, and one for each beside it."""
    methods = (method, *beside)
    begun: list[tuple[Tree, Tree]] = []
    for number, one in enumerate(methods):
        same = methods.index(one)  # equal ones begin alike, which spares what they measure
        begun.append(begun[same] if same < number else _first_states(one, scenario))
    clients, server = tree.stack(begun)
    return World(0, clients, server)


@dataclass(frozen=True)
class Clock:
    """Runs a method through a scenario, or through several of the same deployment side by side."""

    method: Method
    scenario: Scenario
    rounds: Rounds
    seeds: Seeds
    maps: Maps
    score_fresh: bool = False
    """Also score on an independent draw of the same timestep."""
    scored_clients: int | None = None
    """Score this many clients, drawn once; who is neither scored nor takes part in a timestep sleeps through it."""
    beside: tuple[Federation, ...] = ()
    """Further federations in the same batch, which differ in their streams and seeds only."""
    execution: Execution = field(default_factory=Direct)
    state_folder: Path | None = None
    """Keep the clients' states in memory-mapped files of this folder."""

    @property
    def federations(self) -> tuple[Federation, ...]:
        return (Federation(self.scenario, self.seeds), *self.beside)

    @property
    def num_clients(self) -> int:
        return self.scenario.streams.num_clients

    @property
    def num_timesteps(self) -> int:
        return self.scenario.streams.num_timesteps

    def beginning(self) -> World:
        """The world before the first timestep, kept where this clock keeps it."""
        world = beginning(self.method, self.scenario, *(one.method or self.method for one in self.beside))
        return self.world(0, world.clients, world.server)

    def world(self, timestep: int, clients: Tree, server: Tree) -> World:
        """A world of these states, kept where this clock keeps them."""
        return World(timestep, tree.mapped(clients, self.state_folder) if self.state_folder else clients, server)

    def run(self, world: World) -> Iterator[Rows]:
        """Advance the world to the end, yielding the rows of each timestep once the world stands behind it."""
        for pending in self.advance(world):
            yield collect([pending])

    def advance(self, world: World) -> Iterator[PendingRows]:
        """As `run`, for all federations; rows stay on the device, so that the host never waits within a timestep."""
        steps = Steps(self.method, self.scenario.deployment, self.maps)
        running = self.execution.begin(steps)
        while world.timestep < self.num_timesteps:
            with torch.no_grad():
                rows = self._step(running, steps, world, world.timestep + 1)
            world.timestep += 1
            running.breathe()
            yield rows

    def _step(self, running: Running, steps: Steps, world: World, timestep: int) -> PendingRows:
        present = self._awake(timestep)
        batch = self._draw(present.clients, timestep)
        features = batch.features(self.scenario.deployment) if steps.recalls_features else ()
        observation = self._view(present.clients, batch, timestep)
        device = batch.inputs.device
        panel = None if present.scored is None else to_device(present.scored, device)
        clients, server = self._woken(world, present, device), world.server

        clients, plan, observed = running.observe(
            clients, server, observation, batch.labels, () if features is None else features
        )
        before, *scored = (Scores(*(value.clone() for value in _of(scores, panel))) for scores in observed)
        sizes = torch.full(present.participants.shape[::2], float(batch.labels.shape[-1]), device=device)
        for number in range(present.participants.shape[1]):
            chosen = present.participants[:, number]
            keys = self._keys("local", np.take_along_axis(present.clients, chosen, 1), timestep=timestep, round=number)
            clients, plan, server = running.exchange(
                clients, plan, server, observation, to_device(chosen, device), to_device(keys, device), sizes
            )
        after = scored[0] if scored else _score(running, clients, server, batch, panel)
        computed = {
            "accuracy_pre": before.accuracy,
            "accuracy_post": after.accuracy,
            "severity": _of(batch.severity, panel),
            "true_prior": _of(batch.prior, panel).float(),
            **tree.tree_map(torch.clone, _of(plan, panel)),
        }
        if self.score_fresh:
            fresh = self._draw(present.clients, timestep, "fresh")
            computed["accuracy_fresh"] = _score(running, clients, server, fresh, panel).accuracy
        self._put_to_sleep(world, present, clients)
        world.server = server
        return PendingRows(
            timestep,
            self._counted(steps, present, world, batch.labels.shape[-1]),
            computed,
            whole=_of(_whole(batch.inputs), panel),
            finite=before.finite & after.finite,
        )

    def _awake(self, timestep: int) -> Awake:
        seeds = [federation.seeds for federation in self.federations]
        if isinstance(self.method, FederatedMethod):
            when = None if self.method.fixed_participants else timestep
            chosen = [self.rounds.participants(one, self.num_clients, when) for one in seeds]
        else:
            chosen = [np.empty((0, 0), dtype=np.int64) for _ in seeds]
        return awake(np.stack(chosen), self.num_clients, self.scored_clients, seeds)

    def _woken(self, world: World, present: Awake, device: torch.device) -> Tree:
        """States of those who are awake, `[F, A, ...]`."""
        if present.scored is None and self.state_folder is None:
            return world.clients
        return tree.tree_map(
            lambda leaf: leaf.to(device), tree.take_each(world.clients, torch.from_numpy(present.clients))
        )

    def _put_to_sleep(self, world: World, present: Awake, clients: Tree) -> None:
        if present.scored is None and self.state_folder is None:
            world.clients = clients
        else:
            values = tree.tree_map(lambda leaf, new: new.to(leaf.device), world.clients, clients)
            tree.put_each(world.clients, torch.from_numpy(present.clients), values)

    def _draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """One batch for each of the clients, `[F, A, n, ...]`."""
        return stacked([
            federation.scenario.streams.draw(rows, timestep, purpose)
            for federation, rows in zip(self.federations, clients, strict=True)
        ])  # fmt: skip

    def _view(self, clients: NDArray[np.int64], batch: Batch, timestep: int) -> Any:
        device = batch.inputs.device
        times = torch.full(clients.shape, timestep, device=device)
        keys = to_device(self._keys("observe", clients, timestep=timestep), device)
        if self.method.card.oracle:
            return OracleObservation(batch.inputs, times, keys, batch.labels, batch.prior)
        return Observation(batch.inputs, times, keys)

    def _keys(self, purpose: str, clients: NDArray[np.int64], **address: int) -> NDArray[np.int64]:
        """One addressed number per client, from which methods derive all their draws."""
        return np.array([
            [federation.seeds.number(purpose, client=client, **address) for client in rows]
            for federation, rows in zip(self.federations, clients.tolist(), strict=True)
        ])  # fmt: skip

    def _counted(self, steps: Steps, present: Awake, world: World, samples: int) -> dict[str, NDArray[Any]]:
        """Columns that follow from shapes and from who took part."""
        took_part = present.participations()
        cost = steps.exchange_cost
        state_bytes = tree.num_bytes(world.clients) // (len(self.federations) * self.num_clients)
        return {
            "client": present.scored_clients,
            "n": np.full(took_part.shape, samples),
            "participated": took_part,
            "bytes_sent": cost.sent * took_part,
            "bytes_received": cost.received * took_part,
            "state_bytes": np.full(took_part.shape, state_bytes),
            "passes": steps.observe_passes + cost.passes * took_part,
        }


def _first_states(method: Method, scenario: Scenario) -> tuple[Tree, Tree]:
    """Of the clients, `[N, ...]`, and of the server."""
    with torch.no_grad():
        clients = tree.repeat(method.init_client(scenario.deployment), scenario.streams.num_clients)
        server = method.init_server(scenario.deployment) if isinstance(method, FederatedMethod) else ()
    return clients, server


def _score(running: Running, clients: Tree, server: Tree, batch: Batch, panel: Tensor | None) -> Scores:
    found = running.score(_of(clients, panel), server, _of(batch.inputs, panel), _of(batch.labels, panel))
    # Cloned, because a replay writes its results where the last one did.
    return Scores(*(value.clone() for value in found))


def _of(values: Tree, panel: Tensor | None) -> Tree:
    """The rows of those who are scored."""
    return values if panel is None else tree.take_each(values, panel)


def _whole(inputs: Tensor) -> Tensor:
    """Whether the inputs of a client are numbers, `[F, A]`."""
    if not inputs.is_floating_point():
        return torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
    return inputs.isfinite().flatten(2).all(-1)
