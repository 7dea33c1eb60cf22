"""A suite on disk: `suite.json`, and a folder for every cell under its address."""

import hashlib
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import filelock
import torch
from pydantic import ValidationError

from fedade import __version__
from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.provenance import provenance
from fedade.experiments.settings import Experiment
from fedade.experiments.suites.cell import FORMAT, Cell
from fedade.experiments.tracks import Track
from fedade.reporting.outcomes import Outcome
from fedade.reporting.results import Result, result

State = Literal["done", "failed", "damaged", "open", "busy"]
"""Open: begun or not, without an end. Busy: another process is at work on it."""


@dataclass(frozen=True)
class Finding:
    """What a cell's folder holds."""

    state: State
    result: Result | None = None
    reason: str | None = None
    """Why it failed, or what is wrong with its files, in one line."""
    set_aside: Path | None = None
    """Where damaged files were moved to before the cell ran again."""


def claim(folder: Path, suite: str) -> None:
    """Make a folder this suite's; one that holds anything else is refused."""
    told = {"suite": suite, "version": __version__, "format": FORMAT}
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if "suite.json" not in names and any(not name.startswith(".") for name in names):
        raise FedadeError(f"{folder} is not empty and holds no suite; choose another folder with --out")
    with locked(folder / ".lock"):
        if not (folder / "suite.json").exists():
            storage.write_json(folder / "suite.json", told)
    found = storage.read_json(folder / "suite.json")
    for key, value in told.items():
        if found.get(key) != value:
            raise FedadeError(
                f"{folder} holds results of another {key} ({found.get(key)} there, {value} now); "
                "choose another folder with --out"
            )


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Nobody else is here meanwhile; without `wait`, `filelock.Timeout` says that somebody is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise
    except OSError as error:
        raise FedadeError(f"cannot write to {path.parent}: {error.strerror}; choose another --out") from error
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class CellFolder:
    """The files of one cell; whoever writes holds its lock."""

    suite: Path
    cell: Cell

    @property
    def path(self) -> Path:
        """`cells/ADDRESS`."""
        return self.suite / "cells" / self.cell.address

    @property
    def lock(self) -> Path:
        """Beside the folder, because the folder may be set aside."""
        return self.path.with_suffix(".lock")

    @property
    def trace(self) -> Path:
        """The rows of a finished cell."""
        return self.path / "trace.parquet"

    def begin(self, device: str) -> None:
        """Say what is run here, and on what."""
        content = {
            "labels": dict(self.cell.labels),
            "experiment": self.cell.experiment.as_plain(),
            "provenance": provenance(device),
        }
        storage.write_json(self.path / "cell.json", content)

    def finish(self) -> Finding:
        """The track's trace and what it found; from here on the cell is never run again."""
        cell, track = self.cell, Track(self.cell.method, self.cell.seed)
        if not self.trace.exists():  # a process that died here has moved it already
            (track.folder(self.path) / "trace.parquet").replace(self.trace)
        table = trace.read(self.trace)
        scenario = cell.experiment.scenario
        if len(table) != (rows := scenario.num_clients * scenario.num_timesteps):
            raise FedadeError(f"{self.trace} has {len(table)} rows, not {rows}; run it again with --retry-failed")
        oracle = cell.experiment.build_method(cell.method).card.oracle
        found = result(table, cell.method, cell.seed, oracle, float(table.schema.metadata[b"seconds"]))
        check = {"rows": len(table), "checksum": _checksum(self.trace)}
        storage.write_json(self.path / "result.json", {"result": found.asdict(), "trace": check})
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)
        return Finding("done", found)

    def fail(self, error: BaseException) -> Finding:
        """Record why there is no result."""
        reason = " ".join(_reason(error).split())
        told = {"reason": reason, "traceback": "".join(traceback.format_exception(error))}
        storage.write_json(self.path / "failure.json", told)
        return Finding("failed", reason=reason)

    def clear(self) -> None:
        """Forget a failed attempt, its checkpoint too: that may be what was wrong."""
        shutil.rmtree(self.path, ignore_errors=True)

    def set_aside(self) -> Path:
        """Move damaged files away, so that they can be looked at and the cell can run again."""
        number = 1
        while (aside := self.path.with_suffix(f".corrupt-{number}")).exists():
            number += 1
        return self.path.rename(aside)


def _reason(error: BaseException) -> str:
    if isinstance(error, FedadeError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):  # whose own words are a page of addresses
        return "the GPU has too little memory left; run again with a smaller --jobs and --retry-failed"
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Record:
    """A cell as its folder tells it, without the suite that made it."""

    path: Path
    cell: Cell
    finding: Finding

    @property
    def outcome(self) -> Outcome:
        """For tables."""
        return Outcome(self.cell.labels, self.finding.result, self.finding.reason)


def examine(path: Path) -> Finding:
    """What a cell's folder holds; files that contradict themselves are named."""
    try:
        if (path / "result.json").exists():
            said = storage.read_json(path / "result.json")
            _require_whole(path / "trace.parquet", said["trace"])
            return Finding("done", Result(**said["result"]))
        if (path / "failure.json").exists():
            return Finding("failed", reason=str(storage.read_json(path / "failure.json")["reason"]))
    except (FedadeError, KeyError, TypeError) as error:
        return Finding("damaged", reason=str(error))
    return Finding("open")


def records(suite: Path) -> list[Record]:
    """Every cell that the folder of a suite tells of; those without a readable `cell.json` are left out."""
    found = []
    for path in sorted((suite / "cells").glob("*/cell.json")):
        if ".corrupt-" in path.parent.name:
            continue
        try:
            said = storage.read_json(path)
            cell = Cell(said["labels"], Experiment.model_validate(said["experiment"]))
        except (FedadeError, KeyError, TypeError, ValidationError):
            continue
        found.append(Record(path.parent, cell, examine(path.parent)))
    return found


def _require_whole(path: Path, said: dict[str, object]) -> None:
    if not path.exists():
        raise FedadeError(f"{path} is missing")
    if _checksum(path) != said["checksum"]:
        raise FedadeError(f"{path} has changed since it was written")


def _checksum(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
