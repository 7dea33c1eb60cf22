"""Methods and seeds on disk: rows are kept as they come, and a kill at any moment costs seconds."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fedade.core import storage, trace, tree
from fedade.core.errors import FedadeError
from fedade.core.trace import Rows
from fedade.engine.clock import Clock, World
from fedade.engine.pending import PendingRows, collect

SAVE_SHARE = 0.05
"""Saving may take this share of the time."""


class Place(NamedTuple):
    """Where a federation's rows and state are kept, and what its rows are labelled with."""

    folder: Path
    labels: Mapping[str, str | int]


def run_track(
    clock: Clock, folder: Path, labels: Mapping[str, str | int], on_timestep: Callable[[int], None]
) -> pa.Table:
    """The trace of one federation: read if it is finished, continued if it was begun."""
    finished = folder / "trace.parquet"
    if not finished.exists():
        run_side_by_side(clock, [Place(folder, labels)], on_timestep)
    return trace.read(finished)


def run_side_by_side(clock: Clock, places: Sequence[Place], on_timestep: Callable[[int], None]) -> None:
    """Run or continue the clock's federations, which stand at the same timestep, each into its own place."""
    world, spent = _resume(clock, places)
    begun = time.monotonic() - spent
    on_timestep(world.timestep)

    pending: list[PendingRows] = []
    saved, cost = time.monotonic(), 0.0
    for rows in clock.advance(world):
        pending.append(rows)
        on_timestep(world.timestep)
        if world.timestep == clock.num_timesteps or time.monotonic() - saved > cost / SAVE_SHARE:
            before = time.monotonic()
            found = [collect(pending, number) for number in range(len(places))]
            for number, place in enumerate(places):
                _save(place, world, number, found[number], before - begun)
            pending = []
            saved = time.monotonic()
            cost = saved - before
    # Federations that ran side by side share the time.
    seconds = (time.monotonic() - begun) / len(places)
    for place in places:
        _finish(place.folder, world.timestep, seconds)


def standing(folder: Path) -> int:
    """The timestep at which a place can be continued."""
    path = folder / "world.safetensors"
    return int(storage.load_metadata(path)["timestep"]) if path.exists() else 0


def _finish(folder: Path, timestep: int, seconds: float) -> None:
    table = trace.concatenate([trace.read(path) for path in _segments(folder, timestep)])
    trace.write(folder / "trace.parquet", table.replace_schema_metadata({"seconds": f"{seconds:.3f}"}))
    for path in (*folder.glob("rows-*.parquet"), folder / "world.safetensors"):
        path.unlink(missing_ok=True)


def _save(place: Place, world: World, number: int, rows: Rows, spent: float) -> None:
    """Rows first: a world on disk has all its rows beside it, whenever the process dies."""
    count = len(rows["client"])
    table = trace.to_table({name: np.full(count, value) for name, value in place.labels.items()} | dict(rows))
    first = int(rows["timestep"][0])
    trace.write(place.folder / f"rows-{first:06d}-{world.timestep:06d}.parquet", table)
    clients, server = tree.take((world.clients, world.server), number)
    tensors = tree.to_named(clients, "clients") | tree.to_named(server, "server")
    metadata = {"timestep": str(world.timestep), "spent": f"{spent:.3f}"}
    storage.save_tensors(place.folder / "world.safetensors", tensors, metadata)


def _resume(clock: Clock, places: Sequence[Place]) -> tuple[World, float]:
    """Where the run stands, and the seconds that it took to get there."""
    world = clock.beginning()
    timesteps = {standing(place.folder) for place in places}
    if timesteps == {0}:
        return world, 0.0
    if len(timesteps) > 1:
        raise ValueError(f"federations side by side must stand at one timestep, not at {sorted(timesteps)}")
    states, spent = [], 0.0
    like = tree.take((world.clients, world.server), 0)
    for place in places:
        named, metadata = storage.load_tensors(place.folder / "world.safetensors")
        states.append((tree.from_named(like[0], named, "clients"), tree.from_named(like[1], named, "server")))
        spent = float(metadata["spent"])
        _segments(place.folder, int(metadata["timestep"]))
    clients, server = tree.stack(states)
    return clock.world(timesteps.pop(), clients, server), spent


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
