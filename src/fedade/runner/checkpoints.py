"""trace.Rows and states of running cells on disk: a kill at any moment costs seconds."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedade.core import storage, trace, tree
from fedade.core.errors import FedadeError
from fedade.engine.clock import Clock, World
from fedade.engine.pending import PendingRows, collect

SAVE_SHARE = 0.05
"""Saving may take this share of the time."""

WORLD = "world.safetensors"


class CheckpointPlace(NamedTuple):
    """Where a cell's rows and state are kept, and what its rows are labelled with."""

    folder: Path
    method: str
    seed: int
    settings: Mapping[str, Any] = {}
    """The method's, with all defaults."""


@dataclass
class Checkpoints:
    """Keeps cells that run side by side and stand at the same timestep, each in its own place."""

    places: Sequence[CheckpointPlace]
    identity: Mapping[str, str]
    """Digests of weights and data: what was begun with others is not continued."""
    state_folder: Path | None = None
    """Where the only cell's states live in files, which are copied as such: they may not fit into memory."""
    pending: list[PendingRows] = field(default_factory=list, init=False)
    begun: float = field(default=0.0, init=False)
    saved: float = field(default=0.0, init=False)
    cost: float = field(default=0.0, init=False)

    def resume(self, clock: Clock) -> World:
        """The world where the cells stand: at their beginning, or at their last checkpoint."""
        world, spent = self._restored(clock)
        self.saved = time.monotonic()
        self.begun = self.saved - spent
        return world

    def on_rows(self, world: World, rows: PendingRows, last: bool) -> None:
        """Take in the rows of a timestep, and save all that are not saved yet when it is time."""
        self.pending.append(rows)
        now = time.monotonic()
        if not last and now - self.saved <= self.cost / SAVE_SHARE:
            return
        collected = [collect(self.pending, number) for number in range(len(self.places))]
        for number, place in enumerate(self.places):
            self._save(place, world, number, collected[number], now - self.begun)
        self.pending = []
        self.saved = time.monotonic()
        self.cost = self.saved - now

    def finish(self, world: World) -> None:
        seconds = (time.monotonic() - self.begun) / len(self.places)  # cells that ran side by side share the time
        for place in self.places:
            table = trace.concatenate([trace.read(path) for path in _segments(place.folder, world.timestep)])
            whole = table.replace_schema_metadata({"seconds": f"{seconds:.3f}"})
            trace.write(place.folder / "trace.parquet", whole)

    def _save(self, place: CheckpointPlace, world: World, number: int, rows: trace.Rows, spent: float) -> None:
        """trace.Rows first: a world on disk has all its rows beside it, whenever the process dies."""
        count = len(rows["client"])
        labels = {"method": np.full(count, place.method), "seed": np.full(count, place.seed)}
        table = trace.to_table(labels | dict(rows))
        first = int(rows["timestep"][0])
        trace.write(place.folder / f"rows-{first:06d}-{world.timestep:06d}.parquet", table)
        tensors = tree.to_named(tree.take(world.server, number), "server")
        if self.state_folder is None:
            tensors |= tree.to_named(tree.take(world.clients, number), "clients")
        else:
            shutil.copytree(self.state_folder, _saved_states(place.folder, world.timestep), dirs_exist_ok=True)
        settings = json.dumps(place.settings, sort_keys=True)
        metadata = {"timestep": str(world.timestep), "spent": f"{spent:.3f}", "settings": settings, **self.identity}
        storage.save_tensors(place.folder / WORLD, tensors, metadata)
        for path in place.folder.glob("states-*"):  # copies that no world on disk belongs to
            if path != _saved_states(place.folder, world.timestep):
                shutil.rmtree(path, ignore_errors=True)

    def _restored(self, clock: Clock) -> tuple[World, float]:
        """Where the cells stand, and the seconds that it took to get there."""
        world = clock.beginning()
        timesteps = {reached_timestep(place.folder) for place in self.places}
        if timesteps == {0}:
            return world, 0.0
        if len(timesteps) > 1:
            raise ValueError(f"cells side by side must stand at one timestep, not at {sorted(timesteps)}")
        timestep, states, servers, spent = timesteps.pop(), [], [], 0.0
        for place in self.places:
            named, metadata = storage.load_tensors(place.folder / WORLD)
            self._refuse_others(place, metadata)
            servers.append(tree.from_named(tree.take(world.server, 0), named, "server"))
            if self.state_folder is None:
                states.append(tree.from_named(tree.take(world.clients, 0), named, "clients"))
            else:
                saved = tree.mapped(world.clients, _saved_states(place.folder, timestep), stored=True)
                tree.tree_map(lambda leaf, value: leaf.copy_(value), world.clients, saved)
            spent = float(metadata["spent"])
            _segments(place.folder, timestep)
        world.timestep, world.server = timestep, tree.stack(servers)
        if states:
            world.clients = tree.stack(states)
        return world, spent

    def _refuse_others(self, place: CheckpointPlace, metadata: Mapping[str, str]) -> None:
        """What was begun with another version, other settings, weights or data is not continued."""
        before = json.loads(metadata.get("settings", "{}"))
        changed = {what: (metadata.get(what), now) for what, now in self.identity.items()}
        changed |= {f"{place.method}.{key}": (before.get(key), now) for key, now in place.settings.items()}
        for what, (there, now) in changed.items():
            if json.dumps(there, sort_keys=True) != json.dumps(now, sort_keys=True):
                raise FedadeError(
                    f"{place.folder / WORLD} was begun with other {what} ({there} there, {now} now); "
                    "delete the folder to run it again, or bring the old ones back"
                )


def discard(folder: Path) -> None:
    """Remove what only a cell without a trace needs; after a kill in the midst of it, once more."""
    for path in (*folder.glob("rows-*.parquet"), folder / WORLD):
        path.unlink(missing_ok=True)
    for path in folder.glob("states*"):
        shutil.rmtree(path, ignore_errors=True)


def reached_timestep(folder: Path) -> int:
    path = folder / WORLD
    return int(storage.load_metadata(path)["timestep"]) if path.exists() else 0


def _saved_states(folder: Path, timestep: int) -> Path:
    return folder / f"states-{timestep:06d}"


def _segments(folder: Path, timestep: int) -> list[Path]:
    """The files that hold the rows of timesteps 1 to `timestep`, in order; later ones are leftovers of a kill."""
    chosen, reached = [], 0
    for path in sorted(folder.glob("rows-*.parquet")):
        first, last = (int(part) for part in path.stem.split("-")[1:])
        if first == reached + 1 and last <= timestep:
            chosen.append(path)
            reached = last
    if reached != timestep:
        raise FedadeError(f"{folder}: rows after timestep {reached} are missing; delete the folder to run it again")
    return chosen
