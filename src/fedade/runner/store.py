"""Cells on disk: a folder that is claimed once, and below it a folder for every cell under its address."""

import hashlib
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError

from fedade.core import storage, trace
from fedade.core.errors import DeviceLostError, FedadeError
from fedade.core.events import CellInfo
from fedade.core.paths import require_writable
from fedade.core.provenance import provenance
from fedade.core.seeds import Seeds
from fedade.engine.attendance import scored_panel
from fedade.experiments.cell import Cell
from fedade.experiments.settings import Experiment
from fedade.reporting.outcomes import Outcome
from fedade.reporting.results import Result, result
from fedade.scenarios.stream_laws import STREAMS

State = Literal["done", "failed", "damaged", "open", "busy"]
"""Open: begun or not, without an end. Busy: another process is at work on it."""


@dataclass(frozen=True)
class CellStatus:
    """What a cell's folder holds."""

    state: State
    result: Result | None = None
    reason: str | None = None
    """Why it failed, or what is wrong with its files, in one line."""
    set_aside: Path | None = None
    """Where damaged files were moved to before the cell ran again."""


def claim(folder: Path, name: str, content: Mapping[str, Any], write: bool = True) -> None:
    """Make a folder that of a run or suite, which the named file tells; one that holds anything else is refused.
    Without `write` it is only looked at: a start that fails must not leave a claim behind. With it, what killed writers
    have left is swept."""
    require_writable(folder)
    path, kind = folder / name, "suite" if name.endswith(".json") else "run"
    if write:
        storage.sweep(folder)
    if path.exists():
        stored = storage.read_json(path) if name.endswith(".json") else storage.read_yaml(path)
        if (difference := _first_difference(stored, content)) is not None:
            key, before, after = difference
            raise FedadeError(
                f"{folder} holds another {kind} ({key}: {before!r} there, {after!r} now); choose another folder with "
                "--out, or delete it"
            )
        return
    if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise FedadeError(f"{folder} is not empty and holds no {kind}; choose another folder with --out")
    if write:
        with storage.locked(folder / ".lock"):
            if not path.exists():
                (storage.write_json if name.endswith(".json") else storage.write_yaml)(path, content)


def _first_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            below = _first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
            if below is not None:
                return below
        return None
    return None if old == new else (path, old, new)


@dataclass(frozen=True)
class CellFolder:
    """The files of one cell; whoever writes holds its lock."""

    store: Path
    """The folder of the run or suite."""
    cell: Cell

    @property
    def path(self) -> Path:
        return self.store / "cells" / self.cell.address

    @property
    def lock(self) -> Path:
        """Beside the folder, because the folder may be set aside."""
        return self.path.with_suffix(".lock")

    @property
    def trace(self) -> Path:
        return self.path / "trace.parquet"

    @property
    def info(self) -> CellInfo:
        cell = self.cell
        steps = cell.experiment.scenario.num_timesteps
        return CellInfo(cell.address, cell.title, cell.labels, self.path, steps, cell.experiment.as_plain())

    def begin(self, identity: Mapping[str, str]) -> None:
        """Write down what is run here, with which weights and data, and on what."""
        content = {
            "labels": dict(self.cell.labels),
            "title": self.cell.title,
            "row_labels": list(self.cell.row_labels),
            "experiment": self.cell.experiment.as_plain(),
            "method_settings": self.cell.configured.model_dump(mode="json"),
            "identity": dict(identity),
            "provenance": provenance(self.cell.experiment.execution.device),
        }
        storage.write_json(self.path / "cell.json", content)

    def finish(self) -> CellStatus:
        """What the trace tells; from here on the cell is never run again."""
        cell, table = self.cell, trace.read(self.trace)
        scenario, seeds = cell.experiment.scenario, Seeds(cell.seed)
        panel = scored_panel(seeds, scenario.num_clients, cell.experiment.protocol.scored_clients)
        first = STREAMS[scenario.stream].joining(scenario, seeds)[panel]
        if len(table) != (rows := int((scenario.num_timesteps + 1 - first).sum())):
            raise FedadeError(f"{self.trace} has {len(table)} rows, not {rows}; run it again with --retry-failed")
        seconds = float(table.schema.metadata[b"seconds"])
        reached = result(table, cell.method, cell.seed, cell.configured.card.oracle, seconds)
        check = {"rows": len(table), "checksum": _checksum(self.trace)}
        storage.write_json(self.path / "result.json", {"result": reached.asdict(), "trace": check})
        return CellStatus("done", reached)

    def fail(self, error: BaseException) -> CellStatus:
        reason = " ".join(_reason(error).split())
        passes = isinstance(error, _PASSING) or isinstance(error.__cause__, _PASSING)
        content = {"reason": reason, "traceback": "".join(traceback.format_exception(error)), "resumable": passes}
        storage.write_json(self.path / "failure.json", content)
        return CellStatus("failed", reason=reason)

    def forget_failure(self) -> None:
        """Make room for another attempt: from the start, unless the failure was the machine's and not the cell's."""
        if storage.read_json(self.path / "failure.json").get("resumable"):
            (self.path / "failure.json").unlink()
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def set_aside(self) -> Path:
        """Move damaged files away, so that they can be looked at and the cell can run again."""
        number = 1
        while (aside := self.path.with_suffix(f".corrupt-{number}")).exists():
            number += 1
        return self.path.rename(aside)


_PASSING = (OSError, MemoryError, torch.OutOfMemoryError, DeviceLostError)
"""Errors of the kind that passes: a full disk or memory, a GPU that failed."""


def _reason(error: BaseException) -> str:
    if isinstance(error, FedadeError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):  # whose own words are a page of addresses
        return "the GPU has too little memory left; run again with a smaller --jobs and --retry-failed"
    if "DefaultCPUAllocator" in str(error):
        remedy = "a smaller --jobs, or --set execution.client_state=file"
        return f"too little memory is left; run again with --retry-failed and {remedy}"
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Record:
    """A cell as its folder tells it, without whoever made it."""

    path: Path
    cell: Cell
    status: CellStatus
    provenance: Mapping[str, Any]
    """Code, machine and time that it was begun with."""
    identity: Mapping[str, str]
    """Weights and data that it was begun with."""

    @property
    def outcome(self) -> Outcome:
        """What tables take of it: its labels, and its result or why it failed."""
        return Outcome(self.cell.labels, self.status.result, self.status.reason, self.cell.row_labels)


def examine(path: Path) -> CellStatus:
    """What a cell's folder holds; files that contradict themselves are named."""
    try:
        if (path / "result.json").exists():
            stored, rows = storage.read_json(path / "result.json"), path / "trace.parquet"
            if not rows.exists():
                return CellStatus("damaged", reason=f"{rows} is missing")
            if _checksum(rows) != stored["trace"]["checksum"]:
                return CellStatus("damaged", reason=f"{rows} has changed since it was written")
            return CellStatus("done", Result(**stored["result"]))
        if (path / "failure.json").exists():
            return CellStatus("failed", reason=str(storage.read_json(path / "failure.json")["reason"]))
    except (FedadeError, KeyError, TypeError) as error:
        return CellStatus("damaged", reason=str(error))
    return CellStatus("open")


def records(store: Path) -> list[Record]:
    """Every cell that a folder tells of; those without a readable `cell.json` are left out."""
    told = []
    for path in sorted((store / "cells").glob("*/cell.json")):
        if ".corrupt-" in path.parent.name:
            continue
        try:
            stored = storage.read_json(path)
            experiment = Experiment.model_validate(stored["experiment"])
            cell = Cell(stored["labels"], experiment, stored["title"], tuple(stored["row_labels"]))
        except (FedadeError, KeyError, TypeError, ValidationError):
            continue
        origin, identity = stored.get("provenance", {}), stored.get("identity", {})
        told.append(Record(path.parent, cell, examine(path.parent), origin, identity))
    return told


def _checksum(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
