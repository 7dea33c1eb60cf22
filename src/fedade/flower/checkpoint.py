"""The server's memory: after every timestep, whole or absent."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.split import below
from fedade.core.tree import Tree
from fedade.core.version import __version__
from fedade.flower.members import Member
from fedade.flower.rows import PlainRow, rows_of, stored_rows
from fedade.flower.wire import named_leaves, tree_like

FILE = "server.safetensors"
FORMAT = 1
"""Version of the file; raised when older ones could no longer be read."""


@dataclass
class Progress:
    """Where a run stands: all that the server carries from one turn to the next."""

    run: str
    """Names the run to its clients."""
    turn: int
    """The next one."""
    shared: Tree
    settings: dict[str, Any] = field(default_factory=dict)
    """What the run was begun with: the method's settings with all defaults, and the deployment."""
    version: int = 0
    seconds: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)
    """Answers, or rows of them, that were refused, by client."""
    failed: dict[str, int] = field(default_factory=dict)
    """Turns that failed at a client, by client."""
    scaled_back: dict[str, int] = field(default_factory=dict)
    """Updates that moved farther than the fleet's own, by client."""
    quarantined: dict[str, int] = field(default_factory=dict)
    """Bad batches that clients set aside, by client."""
    distances: list[float] = field(default_factory=list)
    """How far the last updates moved, of which the bound on the next is learnt."""
    unanswered: int = 0
    """Turns of clients that did not count."""
    rows: list[PlainRow] = field(default_factory=list)
    """Rows of the trace since the last checkpoint."""


MOST_FILES = 256
"""Files of rows that are kept apart; more become one."""
_OF_THE_MOMENT = ("downlink", "node", "absent", "late", "lost", "bad_answers")
"""What a checkpoint does not tell of a member: tensors are kept as such, and its node is to be met again."""


def count(tally: dict[str, int], client: str) -> None:
    tally[client] = tally.get(client, 0) + 1


def save(folder: Path, progress: Progress, members: list[Member]) -> None:
    """Rows first: a checkpoint on disk has all its rows beside it, whenever the process dies."""
    trace.write(folder / f"rows-{progress.turn:08d}.parquet", stored_rows(progress.rows))
    progress.rows = []
    for member in members:
        member.kept = member.base
    named = {f"shared/{name}": leaf for name, leaf in named_leaves(progress.shared).items()}
    for member in members:
        named |= {f"downlink/{member.number}/{name}": leaf for name, leaf in member.downlink.items()}
    content = {name: value for name, value in vars(progress).items() if name not in ("shared", "rows")}
    plain = [{name: value for name, value in vars(member).items() if name not in _OF_THE_MOMENT} for member in members]
    content |= {"members": plain, "format": FORMAT, "written_by": __version__}
    storage.save_tensors(folder / FILE, named, {"progress": json.dumps(content)})
    files = sorted(folder.glob("rows-*.parquet"))
    if len(files) > MOST_FILES:  # a kill in between leaves rows twice, of which a trace takes one
        trace.write(files[-1], stored_rows(rows_of([trace.read(path) for path in files])))
        for path in files[:-1]:
            path.unlink(missing_ok=True)


def load(folder: Path, form: Tree) -> tuple[Progress, list[Member]] | None:
    path = folder / FILE
    if not path.exists():
        return None
    named, metadata = storage.load_tensors(path)
    content: dict[str, Any] = json.loads(metadata["progress"])
    form_there, writer = content.pop("format", 0), content.pop("written_by", "an earlier version")
    if form_there != FORMAT:
        raise FedadeError(
            f"{path} has format {form_there} of fedade {writer}, this is format {FORMAT} of fedade {__version__}; "
            "continue it with the version that wrote it"
        )
    known = content.pop("members")
    members = [Member(**one, downlink=below(named, f"downlink/{one['number']}/")) for one in known]
    return Progress(shared=tree_like(form, below(named, "shared/")), **content), members


def rows(folder: Path, turn: int) -> list[PlainRow]:
    """All rows up to a turn; later ones are leftovers of a kill."""
    kept = [path for path in sorted(folder.glob("rows-*.parquet")) if int(path.stem.removeprefix("rows-")) <= turn]
    return rows_of([trace.read(path) for path in kept])


def shared_after(run: Path, form: Tree) -> Tree:
    """The shared layers that an earlier run ended or was stopped with."""
    found = sorted(run.glob(f"cells/**/{FILE}"))
    if len(found) != 1:
        raise FedadeError(f"after: {run} holds no checkpoint of a run on real streams; name the folder of one")
    return tree_like(form, below(storage.load_tensors(found[0])[0], "shared/"))


def discard(folder: Path, *, rows_only: bool) -> None:
    """Remove what only an unfinished run needs; another run can begin with the layers of one that keeps them."""
    for path in (*folder.glob("rows-*.parquet"), *(() if rows_only else (folder / FILE,))):
        path.unlink(missing_ok=True)
