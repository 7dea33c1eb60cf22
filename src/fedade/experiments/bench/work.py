"""What one process does for a suite: take cells that nobody has, run them, and leave what became of them."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import filelock

from fedade.core import storage
from fedade.core.devices import release_memory
from fedade.core.errors import FedadeError
from fedade.core.paths import cache_dir
from fedade.experiments.bench.folder import CellFolder, Finding, examine, locked
from fedade.experiments.federations import Single, run_together
from fedade.experiments.suites.cell import Cell
from fedade.experiments.tracks import RATES_FROM, Report, Track, run_one
from fedade.scenarios import ScenarioSettings, build_deployment


@dataclass(frozen=True)
class Task:
    """Cells that one process runs, together where the device gains by it."""

    cells: tuple[Cell, ...]
    suite: Path
    """The suite's folder."""
    device: str
    retry_failed: bool = False
    wait: bool = False
    """For a cell that another process is at work on: wait for its end, instead of leaving it alone."""

    @property
    def title(self) -> str:
        """One line for people."""
        first = self.cells[0]
        if len(self.cells) == 1:
            return first.title
        return f"{first.labels['dataset']} {first.labels['row']}, {len(self.cells)} at once"


def tasks_of(cells: Sequence[Cell], suite: Path, device: str, retry_failed: bool) -> list[Task]:
    """On a GPU, cells that differ only in seed and schedule fill it together; a CPU has no use for that."""
    batches: dict[str, list[Cell]] = {}
    for cell in cells:
        batches.setdefault(cell.batch if device.startswith("cuda") else cell.address, []).append(cell)
    return [Task(tuple(batch), suite, device, retry_failed) for batch in batches.values()]


def run_task(task: Task, report: Report) -> list[Finding]:
    """Run what is neither finished nor in other hands; what became of every cell, in the task's order."""
    found: dict[str, Finding] = {}
    with ExitStack() as held:
        mine = []
        for place in (CellFolder(task.suite, cell) for cell in task.cells):
            try:
                held.enter_context(locked(place.lock, task.wait))
            except filelock.Timeout:
                found[place.cell.address] = Finding("busy")
                continue
            finding = found[place.cell.address] = _opened(place, task.retry_failed)
            if finding.state == "open":
                mine.append(place)
        for place, ended in zip(mine, _run(mine, task, report), strict=True):
            address = place.cell.address
            found[address] = replace(ended, set_aside=found[address].set_aside)
    return [found[cell.address] for cell in task.cells]


def _opened(place: CellFolder, retry_failed: bool) -> Finding:
    """What a cell's folder holds; what cannot stay is moved out of the way of another attempt."""
    finding = examine(place.path)
    if finding.state == "damaged":
        return Finding("open", set_aside=place.set_aside())
    if finding.state == "failed" and retry_failed:
        place.clear()
        return Finding("open")
    return finding


def _run(places: Sequence[CellFolder], task: Task, report: Report) -> list[Finding]:
    try:
        for place in places:
            place.begin(task.device)
            if place.cell.replays:
                _lend_rates(place)
        _advance([place for place in places if not place.trace.exists()], task, report)
        return [place.finish() for place in places]
    except Exception as error:  # noqa: BLE001 - whatever stops a cell is recorded, and the others go on
        if len(places) == 1:
            return [places[0].fail(error)]
    finally:
        release_memory(task.device)
    # The batch fell with one of them; alone, each falls or stands by itself. Outside of `except`, which would hold what
    # the batch had in memory.
    return [finding for place in places for finding in _run([place], task, report)]


def _advance(places: Sequence[CellFolder], task: Task, report: Report) -> None:
    """Run cells that are all of one method and, but for seed and schedule, of the same settings."""

    def titled(_: str, done: int, of: int) -> None:
        report(task.title, done, of)

    singles = [Single(one.cell.experiment, Track(one.cell.method, one.cell.seed), one.path) for one in places]
    if len(singles) > 1:
        run_together(singles, task.device, titled)
        return
    for experiment, track, path in singles:
        run_one(experiment, path, task.device, track, titled)


def _lend_rates(place: CellFolder) -> None:
    """Put the rates that a cell replays where its track looks for them."""
    lender = CellFolder(place.suite, rates_from(place.cell))
    finding = examine(lender.path)
    if finding.state != "done":
        raise FedadeError(
            f"{place.cell.method} replays the learning rates of {RATES_FROM}, which has none here "
            f"(cell {lender.cell.address}: {finding.reason or finding.state}); run it again with --retry-failed"
        )
    lent = Track(RATES_FROM, place.cell.seed).folder(place.path) / "trace.parquet"
    storage.write_bytes(lent, lender.trace.read_bytes())


def rates_from(cell: Cell) -> Cell:
    """The cell whose learning rates a cell replays."""
    return cell.of_method(RATES_FROM)


@dataclass(frozen=True)
class Preparation:
    """A model that cells deploy, trained once before they start."""

    scenario: ScenarioSettings
    device: str

    @property
    def title(self) -> str:
        """One line for people."""
        return f"pre-training {self.scenario.model} on {self.scenario.dataset}, {self.scenario.source}"


def preparations(cells: Iterable[Cell], device: str) -> list[Preparation]:
    """One for every model that the cells deploy."""
    distinct: dict[str, ScenarioSettings] = {}
    for cell in cells:
        scenario = cell.experiment.scenario
        distinct.setdefault(scenario.model_dump_json(include=_OF_THE_MODEL), scenario)
    return [Preparation(scenario, device) for scenario in distinct.values()]


_OF_THE_MODEL = {
    "dataset", "data_dir", "kind", "model", "personal", "source", "train_size", "reference_size", "pretraining",
    "text",
}  # fmt: skip
"""Settings that may change the deployed model."""


def prepare(preparation: Preparation, report: Report) -> None:
    """Train and store a model, unless it is there; an error is left to the cells, which all meet it and record it."""
    store = cache_dir()
    with locked(store / "models" / ".preparing.lock"):
        try:
            build_deployment(
                preparation.scenario, preparation.device, store, lambda done, of: report(preparation.title, done, of)
            )
        except Exception:  # noqa: BLE001 - the cells meet it again, and each records it
            return
