"""All that an adapter remembers, in memory and in a file."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedade.core import storage, tree
from fedade.core.errors import FedadeError
from fedade.core.method import Plan, Shared
from fedade.core.split import below

FORMAT = 3
"""Version of the files; raised when older ones could no longer be read."""


@dataclass(frozen=True)
class Counts:
    """What happened how often, and what the monitor said last."""

    batches: int = 0
    """That were answered."""
    samples: int = 0
    learned: int = 0
    """Times that the method learned: once for a batch, or for a pool of small ones."""
    rolled_back: int = 0
    """Times that the method's state was given up."""
    refused: int = 0
    """Batches that were refused, or answered without learning from them."""
    reason: str | None = None
    """Why the last one was rolled back or refused."""
    estimated_accuracy: float | None = None
    """Share of the last 500 predictions that is right, judged without labels; None without an `AccuracyMonitor`."""
    accuracy_interval: tuple[float, float] | None = None
    """Holds the accuracy nine times in ten."""
    alarm: bool | None = None
    """Whether the model is clearly less accurate than it was on held-out data."""
    alarm_reason: str | None = None


@dataclass(frozen=True)
class Memory:
    """Replaced as a whole, so that whatever fails leaves the last one as it was."""

    state: tree.Tree
    shared: Shared
    monitor: tree.Tree
    waiting: Tensor
    """Inputs of small batches that the method has not observed yet."""
    plan: Plan = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)


class Turn:
    """Whose turn it is to replace a memory; a copy, or what is read from a pickle, has a turn of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Turn"], tuple[()]]:
        return Turn, ()


def save_memory(path: Path, memory: Memory, described: dict[str, Any]) -> None:
    """Store a memory, with what it belongs to."""
    trees = tree.to_named(memory.state, "state") | tree.to_named(memory.monitor, "monitor")
    tables = {"shared": memory.shared, "plan": memory.plan}
    flat = {f"{part}/{name}": value for part, table in tables.items() for name, value in table.items()}
    named = {**trees, **flat, "waiting": memory.waiting}
    said = {**described, "format": FORMAT, "counts": vars(memory.counts)}
    storage.save_tensors(path, named, {"adapter": json.dumps(said)})


def read_description(path: Path) -> dict[str, Any]:
    """What a stored memory belongs to."""
    if not path.is_file():
        raise FedadeError(f"{path} is missing; write it with adapter.save(path)")
    stored = storage.load_metadata(path, "go on from an earlier one, or begin with fedade.Adapter(deployment)")
    said: dict[str, Any] | None = json.loads(stored.get("adapter", "null"))
    if said is None or said["format"] != FORMAT:
        found = "of another command" if said is None else said["format"]
        raise FedadeError(f"{path} has format {found}, not {FORMAT}; use the version of fedade that wrote it")
    return said


def load_memory(path: Path, like: Memory, counts: dict[str, Any]) -> Memory:
    """The memory of a file, with the structure and on the device of another."""
    stored, _ = storage.load_tensors(path)
    named = {name: value.to(like.waiting.device) for name, value in stored.items()}
    _refuse_other_monitor(path, named, tree.to_named(like.monitor, "monitor"))
    state, monitor = (tree.from_named(getattr(like, part), named, part) for part in ("state", "monitor"))
    happened = Counts(**{**counts, "accuracy_interval": tuple(counts["accuracy_interval"] or ()) or None})
    return Memory(state, below(named, "shared/"), monitor, named["waiting"], below(named, "plan/"), happened)


def _refuse_other_monitor(path: Path, stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    kept, expected = (
        {name: value.shape for name, value in named.items() if name.startswith("monitor")} for named in (stored, wanted)
    )
    if kept != expected:
        alone = kept.keys() == {"monitor"}  # the one number of a comparison with the deployed model
        saved = "without a monitor; load it without" if alone else "with a monitor; load it with the same one as"
        raise FedadeError(f"{path} was saved {saved} monitor=")
