"""A client's state on its own disk: one file per turn, whole or absent; and what it brings into a new run."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.split import below
from fedade.core.tree import Tree
from fedade.core.version import __version__
from fedade.flower.settings import CONFIG, FlowerTask, read_task
from fedade.flower.streams import START, Hidden
from fedade.flower.wire import Named, named_leaves, tree_like

FORMAT = 2
"""Version of the files. Version 1, which lacks the shared layers, is read too; tests/flower/states holds examples."""
BEGINNING = -1
"""The turn before the first."""


@dataclass(frozen=True)
class Opened:
    """The timestep that a client is in, and what it saw of it."""

    timestep: int
    inputs: Tensor
    hidden: Hidden | None
    observe_key: int
    plan: dict[str, Tensor]
    accuracy_pre: float | None
    passes: float


@dataclass(frozen=True)
class Snapshot:
    """All that a client remembers between two messages."""

    client: Tree
    cursor: str = START
    timestep: int = 0
    """The last timestep that was opened, with data or without."""
    opened: Opened | None = None
    round_key: int | None = None
    """Key of the round whose personal step is still to come, with the next message."""
    shared: Named = field(default_factory=dict)
    """The shared layers as they last came, to predict with; empty: those deployed."""
    watched: Tree = ()
    """What a monitor of the accuracy remembers; empty where there is none, or nothing was seen yet."""
    estimate: dict[str, Any] = field(default_factory=dict)
    """What it said of the last timestep that was closed."""


@dataclass(frozen=True)
class Store:
    """The snapshots of one client in one run."""

    folder: Path
    form: Tree = field(repr=False)
    """The state before the first turn, which also gives the structure of all others."""
    settings: str = ""
    """The method's, with all defaults, as JSON."""
    watched_form: Tree = field(default=(), repr=False)
    """What the client's monitor remembers before the first timestep; empty where it has none."""

    def load(self, turn: int) -> Snapshot | None:
        """The state after a turn; None where it is gone."""
        path = self._path(turn)
        if not path.is_file():
            return None
        named, metadata = storage.load_tensors(path)
        content = json.loads(metadata["snapshot"])
        if content["format"] not in (1, FORMAT):
            raise FedadeError(
                f"{path} has format {content['format']} of fedade {content.get('written_by', 'an earlier version')}, "
                f"this is format {FORMAT} of fedade {__version__}; use the version that wrote it"
            )
        if (before := content.get("settings", self.settings)) != self.settings:
            raise FedadeError(f"{path} was begun with other settings ({before} there, {self.settings} now)")
        client, opened = tree_like(self.form, below(named, "client/")), None
        if content["opened"] is not None:
            hidden = Hidden(**below(named, "hidden/")) if below(named, "hidden/") else None
            opened = Opened(inputs=named["inputs"], hidden=hidden, plan=below(named, "plan/"), **content["opened"])
        told = (content["cursor"], content["timestep"], opened, content["round_key"])
        watched = self._watched(below(named, "watched/"))
        return Snapshot(client, *told, below(named, "shared/"), watched, content.get("estimate", {}))

    def _watched(self, named: Named) -> Tree:
        """What the monitor remembers; nothing where this one remembers other things than was stored."""
        sides = (named_leaves(self.watched_form), named)
        expected, found = ({name: leaf.shape for name, leaf in side.items()} for side in sides)
        return tree_like(self.watched_form, named) if named and expected == found else ()

    def cursor_at(self, turn: int) -> str:
        """Where the stream stood after a turn, whatever method the state is of."""
        return str(json.loads(storage.load_metadata(self._path(turn))["snapshot"])["cursor"])

    def save(self, turn: int, snapshot: Snapshot) -> None:
        named = {f"client/{name}": leaf for name, leaf in named_leaves(snapshot.client).items()}
        named |= {f"shared/{name}": leaf for name, leaf in snapshot.shared.items()}
        named |= {f"watched/{name}": leaf for name, leaf in named_leaves(snapshot.watched).items()}
        content = {"format": FORMAT, "written_by": __version__, "settings": self.settings, "opened": None}
        content |= {name: getattr(snapshot, name) for name in ("cursor", "timestep", "round_key", "estimate")}
        if (opened := snapshot.opened) is not None:
            named["inputs"] = opened.inputs
            named |= {f"plan/{name}": value for name, value in opened.plan.items()}
            named |= {} if opened.hidden is None else {f"hidden/{k}": v for k, v in opened.hidden._asdict().items()}
            plain = ("timestep", "observe_key", "accuracy_pre", "passes")
            content["opened"] = {name: getattr(opened, name) for name in plain}
        # Private: it holds the client's last batch.
        storage.save_tensors(self._path(turn), named, {"snapshot": json.dumps(content)}, private=True)

    def forget_before(self, turn: int) -> None:
        """Remove states that will never be asked for again, and what a killed turn has left."""
        for path in self.folder.glob("turn-*.safetensors"):
            if int(path.stem.removeprefix("turn-")) < turn:
                path.unlink(missing_ok=True)
        storage.sweep(self.folder)

    def quarantine(self, batch: str, reason: str) -> None:
        """Keep why a batch was set aside, for whoever sends them; the same again if the turn is repeated."""
        storage.write_bytes(self.folder / "quarantine" / f"{batch[:200]}.txt", f"{reason}\n".encode(), private=True)

    def quarantined(self) -> dict[str, str]:
        """Batches that were set aside, with their reasons."""
        return {path.stem: path.read_text().strip() for path in sorted(self.folder.glob("quarantine/*.txt"))}

    def _path(self, turn: int) -> Path:
        return self.folder / f"turn-{turn:08d}.safetensors"


def newest_state(folders: Iterable[Path]) -> tuple[Path, int] | None:
    """The folder and turn of the state that was written last; None where there is none."""
    turns = [path for folder in folders for path in folder.glob("turn-*.safetensors")]
    if not turns:
        return None
    newest = max(turns, key=lambda path: (path.stat().st_mtime, path.name))
    return newest.parent, int(newest.stem.removeprefix("turn-"))


def inherited(store: Store, task: FlowerTask) -> Snapshot | None:
    """Where the stream stands, so that no batch comes twice; of the same method and deployment also what was learned.
    None where the client has no state of another run."""
    siblings = [folder for folder in store.folder.parent.glob("*") if folder.name != store.folder.name]
    if (newest := newest_state(siblings)) is None:
        return None
    before, turn = replace(store, folder=newest[0]), newest[1]
    found = before.load(turn) if _same(before, task) else None
    return Snapshot(store.form if found is None else found.client, before.cursor_at(turn))


def _same(before: Store, task: FlowerTask) -> bool:
    """Whether states are of the method, with its settings, and of the deployment that a task has."""
    try:
        earlier = read_task(before.folder) if (before.folder / CONFIG).exists() else None
    except FedadeError:  # of a version whose settings this one does not understand
        return False
    return earlier is not None and (earlier.method(), earlier.deployment) == (task.method(), task.deployment)
