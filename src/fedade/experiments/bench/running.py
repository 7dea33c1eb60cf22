"""Running a suite to its end, whatever happens to single cells."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedade.experiments.bench.engines import Engine, ProcessLostError
from fedade.experiments.bench.folder import CellFolder, Finding, claim, examine, locked
from fedade.experiments.bench.work import Task, preparations, prepare, rates_from, run_task, tasks_of
from fedade.experiments.suites.cell import Cell


class Watcher(Protocol):
    """Whoever shows how far a suite is."""

    def begin(self, total: int, done: int, failed: int) -> None:
        """Cells in all, and those that earlier runs have settled."""

    def advance(self, title: str, done: int, of: int) -> None:
        """A task under way."""

    def end(self, title: str, done: int, failed: int) -> None:
        """A task that ended, with the cells that it settled."""


@dataclass(frozen=True)
class SuiteRun:
    """What became of the cells that were asked for."""

    suite: str
    folder: Path
    cells: tuple[tuple[Cell, Finding], ...]
    seconds: float

    @property
    def failed(self) -> list[tuple[Cell, Finding]]:
        """Cells without a result."""
        return [(cell, finding) for cell, finding in self.cells if finding.state != "done"]

    @property
    def set_aside(self) -> list[tuple[Cell, Finding]]:
        """Cells whose damaged files were moved away."""
        return [(cell, finding) for cell, finding in self.cells if finding.set_aside is not None]

    def as_plain(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "suite": self.suite,
            "folder": str(self.folder),
            "cells": [_plain(cell, finding) for cell, finding in self.cells],
            "failed": [_plain(cell, finding) for cell, finding in self.failed],
            "wall_seconds": round(self.seconds, 2),
        }


def _plain(cell: Cell, finding: Finding) -> dict[str, Any]:
    told: dict[str, Any] = {"cell": cell.address, "labels": dict(cell.labels), "status": finding.state}
    if finding.result is not None:
        told |= {key: value for key, value in finding.result.asdict().items() if key not in cell.labels}
    if finding.reason is not None:
        told["reason"] = finding.reason
    if finding.set_aside is not None:
        told["damaged_files"] = str(finding.set_aside)
    return told


def run_suite(
    suite: str,
    cells: Sequence[Cell],
    folder: Path,
    device: str,
    engine: Engine,
    watcher: Watcher,
    retry_failed: bool = False,
) -> SuiteRun:
    """Run the cells that have no result yet; those that others are at work on are waited for."""
    begun = time.monotonic()
    folder = folder.resolve()
    claim(folder, suite)
    everything = _with_lenders(cells)
    found = {cell.address: examine(CellFolder(folder, cell).path) for cell in everything}
    settled = {"done"} if retry_failed else {"done", "failed"}
    todo = [cell for cell in everything if found[cell.address].state not in settled]
    watcher.begin(len(everything), *_counts(finding for finding in found.values() if finding.state in settled))
    for preparation, _ in engine(prepare, preparations(todo, device), watcher.advance):
        watcher.end(preparation.title, 0, 0)
    for stage in _stages(todo):
        tasks = tasks_of(stage, folder, device, retry_failed)
        found |= _settled(engine, tasks, watcher)
        others = [cell for cell in stage if found[cell.address].state == "busy"]
        found |= _settled(engine, [Task((cell,), folder, device, wait=True) for cell in others], watcher)
    asked = tuple((cell, found[cell.address]) for cell in cells)
    return SuiteRun(suite, folder, asked, time.monotonic() - begun)


def _with_lenders(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, each once, with those whose learning rates they replay."""
    known = {cell.address: cell for cell in cells}
    for lender in (rates_from(cell) for cell in cells if cell.replays):
        known.setdefault(lender.address, lender)
    return list(known.values())


def _stages(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Those that replay the rates of others come after them."""
    return [cell for cell in cells if not cell.replays], [cell for cell in cells if cell.replays]


def _settled(engine: Engine, tasks: Sequence[Task], watcher: Watcher) -> dict[str, Finding]:
    """What became of the cells of all tasks."""
    found: dict[str, Finding] = {}
    for task, answer in engine(run_task, tasks, watcher.advance):
        findings = _lost(task, answer) if isinstance(answer, ProcessLostError) else answer
        found |= {cell.address: finding for cell, finding in zip(task.cells, findings, strict=True)}
        watcher.end(task.title, *_counts(findings))
    return found


def _lost(task: Task, error: ProcessLostError) -> list[Finding]:
    """Cells whose process died with them twice fail; those that it had finished before are kept."""
    findings = []
    for cell in task.cells:
        place = CellFolder(task.suite, cell)
        with locked(place.lock):
            finding = examine(place.path)
            findings.append(place.fail(error) if finding.state == "open" else finding)
    return findings


def _counts(findings: Iterable[Finding]) -> tuple[int, int]:
    states = [finding.state for finding in findings]
    return states.count("done"), states.count("failed")
