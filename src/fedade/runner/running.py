"""Running cells to their end, whatever happens to single ones: what `fedade run` and `fedade bench` sit on."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import Listener
from fedade.experiments.cell import Cell
from fedade.experiments.settings import Experiment
from fedade.runner.executors import Executor, ProcessLostError
from fedade.runner.store import CellFolder, CellStatus, examine
from fedade.runner.work import Task, Worker

PLAN = "plan.json"
"""The cells of a folder, begun or not: `{"cells": {address: title}}`."""


@dataclass(frozen=True)
class CellsRun:
    """What became of the cells that were asked for."""

    folder: Path
    cells: tuple[tuple[Cell, CellStatus], ...]
    seconds: float

    @property
    def failed(self) -> list[tuple[Cell, CellStatus]]:
        return [(cell, status) for cell, status in self.cells if status.state != "done"]

    @property
    def set_aside(self) -> list[tuple[Cell, CellStatus]]:
        """Cells whose damaged files were moved away."""
        return [(cell, status) for cell, status in self.cells if status.set_aside is not None]

    def as_plain(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "cells": [_plain(cell, status) for cell, status in self.cells],
            "failed": [_plain(cell, status) for cell, status in self.failed],
            "wall_seconds": round(self.seconds, 2),
        }


def _plain(cell: Cell, status: CellStatus) -> dict[str, Any]:
    plain: dict[str, Any] = {"cell": cell.address, "labels": dict(cell.labels), "status": status.state}
    if status.result is not None:
        plain |= {key: value for key, value in status.result.asdict().items() if key not in cell.labels}
    if status.reason is not None:
        plain["reason"] = status.reason
    if status.set_aside is not None:
        plain["damaged_files"] = str(status.set_aside)
    return plain


def prepare(cells: Iterable[Cell], executor: Executor) -> list[FedadeError]:
    """Train the models that cells deploy, each once, before any of them starts; what hinders it."""
    distinct: dict[str, Experiment] = {}
    for cell in cells:
        key = cell.experiment.scenario.model_dump_json(include=_OF_THE_MODEL)
        distinct.setdefault(key, cell.experiment)
    answers = (answer for _, answer in executor(Worker.prepare, list(distinct.values())))
    return [answer for answer in answers if isinstance(answer, FedadeError)]


_OF_THE_MODEL = {
    "dataset", "data_dir", "kind", "model", "personal", "source", "train_size", "reference_size", "pretraining",
    "text", "head", "pixels", "weights_digest", "data_digest",
}  # fmt: skip
"""Settings that may change the deployed model."""


def unfinished(cells: Sequence[Cell], folder: Path, retry_failed: bool) -> list[Cell]:
    """The cells that have no result yet, with those whose learning rates they replay, each once."""
    needed = {cell.address: cell for cell in cells}
    for lender in (cell.lender for cell in cells):
        if lender is not None:
            needed.setdefault(lender.address, lender)
    settled = _settled_states(retry_failed)
    return [cell for cell in needed.values() if examine(CellFolder(folder, cell).path).state not in settled]


def run_cells(
    cells: Sequence[Cell], folder: Path, executor: Executor, listener: Listener, retry_failed: bool = False
) -> CellsRun:
    """Run the cells that have no result yet; those that others are at work on are waited for."""
    begun = time.monotonic()
    todo = unfinished(cells, folder, retry_failed)
    statuses = {cell.address: examine(CellFolder(folder, cell).path) for cell in (*cells, *todo)}
    settled = [status.state for status in statuses.values() if status.state in _settled_states(retry_failed)]
    listener.on_plan(len(statuses), settled.count("done"), settled.count("failed"))
    # The plan names the cells that will be run, for whoever looks on; several runners may add to one folder.
    earlier = storage.read_json(folder / PLAN)["cells"] if (folder / PLAN).exists() else {}
    planned = earlier | {cell.address: cell.title for cell in (*cells, *todo)}
    if planned != earlier:
        storage.write_json(folder / PLAN, {"cells": planned})
    # Those that replay the rates of others come after them.
    for stage in ([cell for cell in todo if cell.lender is None], [cell for cell in todo if cell.lender is not None]):
        statuses |= _ended(executor, tasks_of(stage, folder, retry_failed), listener)
        others = [cell for cell in stage if statuses[cell.address].state == "busy"]
        statuses |= _ended(executor, [Task((cell,), folder, wait=True) for cell in others], listener)
    asked = tuple((cell, statuses[cell.address]) for cell in cells)
    return CellsRun(folder, asked, time.monotonic() - begun)


def _settled_states(retry_failed: bool) -> set[str]:
    return {"done"} if retry_failed else {"done", "failed"}


def tasks_of(cells: Sequence[Cell], folder: Path, retry_failed: bool) -> list[Task]:
    """On a GPU, cells that differ only in seed and schedule fill it together; a CPU has no use for that. Federations
    side by side are awake in full and in memory: cells whose clients sleep, or live in files, run alone."""
    batches: dict[str, list[Cell]] = {}
    for cell in cells:
        experiment = cell.experiment
        execution, awake = experiment.execution, experiment.protocol.scored_clients is None
        together = execution.on_gpu and awake and execution.client_state == "memory"
        batches.setdefault(cell.batch if together else cell.address, []).append(cell)
    return [Task(tuple(batch), folder, retry_failed) for batch in batches.values()]


def _ended(executor: Executor, tasks: Sequence[Task], listener: Listener) -> dict[str, CellStatus]:
    statuses: dict[str, CellStatus] = {}
    for task, answer in executor(Worker.run, tasks):
        ends = _lost(task, answer) if isinstance(answer, ProcessLostError) else answer
        for cell, status in zip(task.cells, ends, strict=True):
            statuses[cell.address] = status
            if status.result is not None:
                listener.on_end(CellFolder(task.store, cell).info, status.result.asdict())
            elif status.state == "failed":
                listener.on_failure(CellFolder(task.store, cell).info, status.reason or "")
    return statuses


def _lost(task: Task, error: ProcessLostError) -> list[CellStatus]:
    """Cells whose process died with them twice fail; those that it had finished before are kept."""
    statuses = []
    for place in (CellFolder(task.store, cell) for cell in task.cells):
        with storage.locked(place.lock):
            status = examine(place.path)
            statuses.append(place.fail(error) if status.state == "open" else status)
    return statuses
