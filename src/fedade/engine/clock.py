"""A run of one method: the protocol, top to bottom."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import tree
from fedade.core.context import context_before_first_batch
from fedade.core.deployment import Reference
from fedade.core.method import Method, with_rounds
from fedade.core.scenario import Batch, Scenario, present_clients, stacked
from fedade.core.seeds import Seeds
from fedade.core.threads import to_device
from fedade.core.trace import Rows
from fedade.core.tree import Tree
from fedade.engine.attendance import Awake, Rounds, awake
from fedade.engine.client import whole_rows
from fedade.engine.execution import Direct, Execution, Running
from fedade.engine.pending import PendingRows, collect
from fedade.engine.steps import Maps, Scores, StepBatch, Steps


class Federation(NamedTuple):
    """Clients with streams of their own, a server, and the seeds of all their draws."""

    scenario: Scenario
    seeds: Seeds
    method: Method | None = None
    """Where that is not the clock's: one that differs only in what its clients begin with, and in its rates."""


@dataclass
class World:
    """All that exists between two timesteps; owned by the clock, which alone writes to it."""

    timestep: int
    clients: Tree
    """Every client of every federation, `[F, N, ...]`."""
    server: Tree
    """`[F, ...]`"""


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
    more_federations: tuple[Federation, ...] = ()
    """Further ones in the same batch, which differ in their streams and seeds only."""
    execution: Execution = field(default_factory=Direct)
    state_folder: Path | None = None
    """Keep the clients' states in memory-mapped files of this folder."""

    @property
    def federations(self) -> tuple[Federation, ...]:
        return (Federation(self.scenario, self.seeds), *self.more_federations)

    @property
    def num_clients(self) -> int:
        return self.scenario.streams.num_clients

    @property
    def num_timesteps(self) -> int:
        return self.scenario.streams.num_timesteps

    def beginning(self) -> World:
        """The world before the first timestep, kept where this clock keeps it."""
        methods = [federation.method or self.method for federation in self.federations]
        with torch.no_grad():
            self.execution.rehearse(self._kind("begin"), lambda: _first_states(methods[0], self._apart()))
            states: list[tuple[Tree, Tree]] = []
            for number, method in enumerate(methods):
                same = methods.index(method)  # equal ones begin alike, which spares what they measure
                states.append(states[same] if same < number else _first_states(method, self.scenario))
            client, shared = tree.stack(states)
            count = self.num_clients
            clients = tree.tree_map(lambda leaf: leaf.unsqueeze(1).expand(-1, count, *leaf.shape[1:]), client)
            # These are views: a state that is kept on disk never needs memory for all clients.
            return self.world(0, clients if self.state_folder else tree.copied(clients), shared)

    def world(self, timestep: int, clients: Tree, shared: Tree) -> World:
        """A world of these states, kept where this clock keeps them."""
        return World(timestep, tree.mapped(clients, self.state_folder) if self.state_folder else clients, shared)

    def run(self, world: World) -> Iterator[Rows]:
        """Advance the world to the end, yielding the rows of each timestep once the world stands behind it."""
        for pending in self.advance(world):
            yield collect([pending])

    def advance(self, world: World) -> Iterator[PendingRows]:
        """As `run`, for all federations; rows stay on the device, so that the host never waits within a timestep."""
        steps = Steps(self.method, self.scenario.deployment, self.maps, *self._labelled())
        running = self.execution.begin(steps)
        with torch.no_grad():
            if world.timestep:  # from a checkpoint: what depends on measurements, such as shapes, is as it was then
                _first_states(self.method, self.scenario)
            self.execution.rehearse(self._kind("timestep"), lambda: self._rehearsal(steps, world))
        while world.timestep < self.num_timesteps:
            with torch.no_grad():
                rows = self._step(running, steps, world, world.timestep + 1)
            world.timestep += 1
            running.end_timestep()
            yield rows

    def _kind(self, work: str) -> object:
        """Work of one kind is computed by the same kernels."""
        shapes = tuple(value.shape for value in self.scenario.deployment.parameters.values())
        return work, repr(self.method), len(self.federations), shapes

    def _apart(self) -> Scenario:
        """The scenario, whose deployment keeps to itself what a rehearsal measures, since its kernels give zeros."""
        return replace(self.scenario, deployment=self.scenario.deployment.apart())

    def _rehearsal(self, steps: Steps, world: World) -> None:
        """What a timestep does, with one round, of which nothing is kept."""
        timestep = min(world.timestep + 1, self.num_timesteps)
        alike, present = replace(steps, deployment=self._apart().deployment), self._awake(timestep)
        present = present._replace(participants=present.participants[:, :1])
        drawn = self._draw(present.clients, timestep)
        batch = self._step_batch(present.clients, drawn._replace(features=None), timestep)
        self._adapted(Direct().begin(alike), world, present, batch, timestep)

    def _step(self, running: Running, steps: Steps, world: World, timestep: int) -> PendingRows:
        present = self._awake(timestep)
        drawn = self._draw(present.clients, timestep)
        batch = self._step_batch(present.clients, drawn, timestep)
        panel = present.panel(drawn.inputs.device)
        clients, plan, shared, before, after = self._adapted(running, world, present, batch, timestep)
        computed = {
            "accuracy_pre": before.accuracy,
            "accuracy_post": after.accuracy,
            "severity": _of(drawn.severity, panel),
            "true_prior": _of(drawn.prior, panel).float(),
            **(after.quality._asdict() if after.quality else {}),
            **tree.copied(_of(plan, panel)),
        }
        if self.score_fresh:
            fresh = self._draw(present.clients, timestep, "fresh")
            fresh_batch = batch._replace(inputs=fresh.inputs, labels=fresh.labels, prior=fresh.prior, features=())
            computed["accuracy_fresh"] = _score(running, clients, shared, fresh_batch, panel).accuracy
        self._put_to_sleep(world, present, clients)
        world.server = shared
        return PendingRows(
            timestep,
            self._counted(steps, present, world, batch.labels.shape[-1]),
            computed,
            whole=_of(whole_rows(batch.inputs, 2), panel),
            finite=before.finite & after.finite,
        )

    def _adapted(
        self, running: Running, world: World, present: Awake, batch: StepBatch, timestep: int
    ) -> tuple[Tree, Tree, Tree, Scores, Scores]:
        """Clients, their plans and the server after a timestep, and the scores before and after; writes no world."""
        device = batch.inputs.device
        panel = present.panel(device)
        clients, plan, observed = running.observe(self._woken(world, present, device), world.server, batch)
        batch, shared = batch._replace(features=()), world.server
        before, *scored = tree.copied([_of(scores, panel) for scores in observed])
        sizes = torch.full(present.participants.shape[::2], float(batch.labels.shape[-1]), device=device)
        for number in range(present.participants.shape[1]):
            chosen = present.participants[:, number]
            keys = self._keys("local", np.take_along_axis(present.clients, chosen, 1), timestep=timestep, round=number)
            clients, plan, shared = running.exchange(
                clients, plan, shared, batch, to_device(chosen, device), to_device(keys, device), sizes
            )
        federated = with_rounds(self.method)
        if federated is not None and federated.everyone_personalises:
            clients, plan = running.personalise(clients, plan, shared, batch)
        after = scored[0] if scored else _score(running, clients, shared, batch, panel)
        return clients, plan, shared, before, after

    def _awake(self, timestep: int) -> Awake:
        seeds = [federation.seeds for federation in self.federations]
        # As many in each federation: who joins depends on the seed, how many do not.
        present = np.stack([present_clients(federation.scenario.streams, timestep) for federation in self.federations])
        method, chosen = with_rounds(self.method), np.empty((len(seeds), 0, 0), dtype=np.int64)
        if method is not None:
            when = None if method.keeps_participants else timestep
            chosen = np.stack([self.rounds.participants(own, present.shape[1], when) for own in seeds])
        return awake(present, chosen, self.num_clients, self.scored_clients, seeds)

    def _woken(self, world: World, present: Awake, device: torch.device) -> Tree:
        if self._all_in_memory(present):
            return world.clients
        woken = tree.take_each(world.clients, torch.from_numpy(present.clients))
        return tree.tree_map(lambda leaf: leaf.to(device), woken)

    def _put_to_sleep(self, world: World, present: Awake, clients: Tree) -> None:
        if self._all_in_memory(present):
            world.clients = clients
        else:
            values = tree.tree_map(lambda leaf, new: new.to(leaf.device), world.clients, clients)
            tree.put_each(world.clients, torch.from_numpy(present.clients), values)

    def _all_in_memory(self, present: Awake) -> bool:
        return present.clients.shape[1] == self.num_clients and self.state_folder is None

    def _draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        return stacked([
            federation.scenario.streams.draw(rows, timestep, purpose)
            for federation, rows in zip(self.federations, clients, strict=True)
        ])  # fmt: skip

    def _step_batch(self, clients: NDArray[np.int64], drawn: Batch, timestep: int) -> StepBatch:
        """A draw as the steps take it, with features where they are known and the method reads them."""
        device, deployment = drawn.inputs.device, self.scenario.deployment
        times = torch.full(clients.shape, timestep, device=device)
        keys = to_device(self._keys("observe", clients, timestep=timestep), device)
        read = drawn.features if self.method.reads_deployed_features(deployment) else None
        features = read(deployment) if read is not None else ()
        known = features, self._reference_rows(clients, device), self._rates(clients.shape, device)
        return StepBatch(drawn.inputs, drawn.labels, drawn.prior, times, keys, *known)

    def _rates(self, shape: tuple[int, ...], device: torch.device) -> dict[str, Tensor] | tuple[()]:
        """Of every client, `[F, A]`, where federations have different ones."""
        rates = [(federation.method or self.method).rates for federation in self.federations]
        if all(own == rates[0] for own in rates):
            return ()
        like = self.scenario.deployment.source_prior
        return {
            name: torch.tensor([own[name] for own in rates], dtype=like.dtype, device=device)[:, None].expand(shape)
            for name in rates[0]
        }

    def _labelled(self) -> tuple[Reference | None, Tensor | None]:
        """What clients' labelled data are rows of, and its features where the method asks for them."""
        references = self.scenario.references
        if references is None:
            return None, None
        asked = self.method.reads_reference_features
        return references.pool, references.features(self.scenario.deployment) if asked else None

    def _reference_rows(self, clients: NDArray[np.int64], device: torch.device) -> Tensor | tuple[()]:
        """Which labelled data each of the clients has, `[F, A, n]`."""
        references = [federation.scenario.references for federation in self.federations]
        if not self.method.card.reference:
            return ()
        together = zip(references, clients, strict=True)
        rows = [all_of_them.rows[to_device(own, device)] for all_of_them, own in together if all_of_them is not None]
        return torch.stack(rows) if rows else ()

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
            "passes": steps.observe_passes + steps.personalise_passes + cost.passes * took_part,
        }


def _first_states(method: Method, scenario: Scenario) -> tuple[Tree, Tree]:
    federated = with_rounds(method)
    shared = {} if federated is None else federated.begin_server(scenario.deployment)
    return method.begin(context_before_first_batch(scenario.deployment)), shared


def _score(running: Running, clients: Tree, shared: Tree, batch: StepBatch, panel: Tensor | None) -> Scores:
    # Cloned, because a replay writes its results where the last one did.
    scores: Scores = tree.copied(running.score(_of(clients, panel), shared, _of(batch, panel)))
    return scores


def _of(values: Tree, panel: Tensor | None) -> Tree:
    """The rows of those who are scored."""
    return values if panel is None else tree.take_each(values, panel)
