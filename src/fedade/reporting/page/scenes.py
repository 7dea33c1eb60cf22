"""What the plots of a page show: scenes, each with the rows of its methods and seeds.

Every track gives curves: mean and quartiles over clients by timestep. Single clients are kept as well, seed after seed,
as long as the page stays small (`TIERS`); where not even one seed fits, evenly spaced clients are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.reporting.page.grids import Blobs, ClientGrid, Packed, answers, curves, measured, numbering, priors

_REQUIRED = (*trace.IDENTIFIERS, "n", "accuracy_post", "accuracy_pre")


@dataclass(frozen=True)
class Recording:
    """One method and seed; rows are read when they are packed, so that many tracks need the memory of one."""

    method: str
    seed: int
    oracle: bool
    read: Callable[[], pa.Table]


@dataclass(frozen=True)
class Scene:
    """What is looked at together: all methods and seeds under the same labels, such as dataset and schedule."""

    labels: Mapping[str, str]
    recordings: Sequence[Recording]


@dataclass(frozen=True)
class PackedScenes:
    """Scenes as the page holds them."""

    index: Mapping[str, Any]
    blobs: Sequence[str]
    broken: Sequence[str]
    """Why rows of some tracks are not there, a line for each."""


@dataclass(frozen=True)
class Tier:
    """Numbers of single clients, and how much of the page they may take."""

    name: str
    characters: int
    columns: Callable[[ClientGrid, int, Blobs], dict[str, Packed]]


TIERS = (Tier("detail", 3_000_000, measured), Tier("priors", 1_400_000, priors))
"""Apart, because the frequencies of 200 classes would otherwise crowd out all else."""


def complete(table: pa.Table, path: Path) -> pa.Table:
    """The table, if it has the columns that every trace has."""
    lacking = [name for name in _REQUIRED if name not in table.column_names]
    if lacking:
        raise FedadeError(f"{path} is no trace: it lacks {', '.join(lacking)}; delete it and run again")
    if len(table) == 0:
        raise FedadeError(f"{path} holds no rows; delete it and run again")
    return table


def pack(scenes: Sequence[Scene], tiers: Sequence[Tier] = TIERS) -> PackedScenes:
    """All scenes: curves of every track, and single clients as far as the budgets go."""
    blobs, broken = Blobs(), dict[str, None]()
    entries = [_scene_entry(scene, blobs, broken) for scene in scenes]
    for tier in tiers:
        blobs = _pack_tier(tier, scenes, entries, blobs)
    methods = {recording.method: recording.oracle for scene in scenes for recording in scene.recordings}
    index = {
        "keys": list(dict.fromkeys(key for scene in scenes for key in scene.labels)),
        "methods": [{"name": name, "oracle": oracle} for name, oracle in methods.items()],
        "scenes": entries,
    }
    return PackedScenes(index, blobs.lines, list(broken))


def _scene_entry(scene: Scene, blobs: Blobs, broken: dict[str, None]) -> dict[str, Any]:
    tracks = []
    for recording in scene.recordings:
        try:
            table = recording.read()
        except FedadeError as error:  # a track that cannot be read does not hide the others
            broken[str(error)] = None
            continue
        grid = ClientGrid(table)
        track = {"method": recording.method, "seed": recording.seed, "timesteps": numbering(grid.timesteps)}
        track |= {"mean": trace.mean(trace.column(table, "accuracy_post"))}
        tracks.append({**track, "curves": curves(grid, blobs), "answers": answers(grid, blobs)})
    return {"labels": dict(scene.labels), "tracks": tracks}


def _pack_tier(tier: Tier, scenes: Sequence[Scene], entries: Sequence[dict[str, Any]], blobs: Blobs) -> Blobs:
    """Add single clients to the entries: the first seed of every scene before the second of any."""
    before, stride = blobs.size, 1
    for rank in range(max((len(_seeds(entry)) for entry in entries), default=0)):
        attempt, packed_rows = _pack_rank(tier, scenes, entries, rank, stride, blobs.copy())
        if rank == 0 and attempt.size - before > tier.characters:
            stride = -(-(attempt.size - before) // tier.characters)
            attempt, packed_rows = _pack_rank(tier, scenes, entries, rank, stride, blobs.copy())
        elif attempt.size - before > tier.characters:
            break
        blobs = attempt
        for track, packed in packed_rows:
            track[tier.name] = packed
    return blobs


def _pack_rank(
    tier: Tier, scenes: Sequence[Scene], entries: Sequence[dict[str, Any]], rank: int, stride: int, blobs: Blobs
) -> tuple[Blobs, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """One seed of every scene: its tracks, and what the tier keeps of each."""
    packed_rows = []
    for scene, entry in zip(scenes, entries, strict=True):
        chosen = _seeds(entry)[rank : rank + 1]
        tracks = {(track["method"], track["seed"]): track for track in entry["tracks"] if track["seed"] in chosen}
        for recording in scene.recordings:
            if (track := tracks.get((recording.method, recording.seed))) is not None:
                grid = ClientGrid(recording.read())
                columns = tier.columns(grid, stride, blobs)
                kept = {"clients": numbering(grid.clients[::stride]), "one_in": stride, "columns": columns}
                packed_rows.append((track, kept))
    return blobs, packed_rows


def _seeds(entry: Mapping[str, Any]) -> list[int]:
    return sorted({track["seed"] for track in entry["tracks"]})
