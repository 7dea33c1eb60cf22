"""One method and seed on disk: rows are kept as they come, and a kill at any moment costs seconds."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedade.core import storage, trace, tree
from fedade.core.errors import FedadeError
from fedade.core.trace import Rows
from fedade.engine.clock import Clock, World, beginning

SAVE_SHARE = 0.05
"""Saving may take this share of the time."""


def run_track(
    clock: Clock, folder: Path, labels: Mapping[str, str | int], on_timestep: Callable[[int], None]
) -> pa.Table:
    """The trace of a method and seed: read if it is finished, continued if it was begun."""
    finished = folder / "trace.parquet"
    if finished.exists():
        return trace.read(finished)
    world, spent = _resume(clock, folder)
    begun = time.monotonic() - spent
    on_timestep(world.timestep)

    pending: list[Rows] = []
    saved, cost = time.monotonic(), 0.0
    for rows in clock.run(world):
        pending.append(rows)
        on_timestep(world.timestep)
        last = world.timestep == clock.scenario.streams.num_timesteps
        if last or time.monotonic() - saved > cost / SAVE_SHARE:
            before = time.monotonic()
            _save(folder, world, _table(pending, labels), before - begun)
            pending = []
            saved = time.monotonic()
            cost = saved - before
    table = trace.concatenate([trace.read(path) for path in _segments(folder, world.timestep)])
    table = table.replace_schema_metadata({"seconds": f"{time.monotonic() - begun:.3f}"})
    trace.write(finished, table)
    for path in (*folder.glob("rows-*.parquet"), folder / "world.safetensors"):
        path.unlink(missing_ok=True)
    return table


def _table(rows: Sequence[Rows], labels: Mapping[str, str | int]) -> pa.Table:
    joined = {name: np.concatenate([step[name] for step in rows]) for name in rows[0]}
    count = len(joined["client"])
    return trace.to_table({name: np.full(count, value) for name, value in labels.items()} | joined)


def _save(folder: Path, world: World, rows: pa.Table, spent: float) -> None:
    """Rows first: a world on disk has all its rows beside it, whenever the process dies."""
    first = int(trace.column(rows, "timestep")[0])
    trace.write(folder / f"rows-{first:06d}-{world.timestep:06d}.parquet", rows)
    tensors = tree.to_named(world.clients, "clients") | tree.to_named(world.server, "server")
    metadata = {"timestep": str(world.timestep), "spent": f"{spent:.3f}"}
    storage.save_tensors(folder / "world.safetensors", tensors, metadata)


def _resume(clock: Clock, folder: Path) -> tuple[World, float]:
    """Where the run stands, and the seconds that it took to get there."""
    world = beginning(clock.method, clock.scenario)
    path = folder / "world.safetensors"
    if not path.exists():
        return world, 0.0
    named, metadata = storage.load_tensors(path)
    world.clients = tree.from_named(world.clients, named, "clients")
    world.server = tree.from_named(world.server, named, "server")
    world.timestep = int(metadata["timestep"])
    _segments(folder, world.timestep)
    return world, float(metadata["spent"])


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
