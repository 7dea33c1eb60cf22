"""What one process does: take cells that nobody has, run them, and leave what became of them."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import filelock

from fedade.core import storage, trace
from fedade.core.errors import DeviceLostError, FedadeError
from fedade.core.events import Listener
from fedade.core.method import Method
from fedade.core.paths import cache_dir
from fedade.core.seeds import Seeds
from fedade.core.threads import is_lost, release_memory
from fedade.core.version import __version__
from fedade.data.locate import search_path
from fedade.engine.clock import Federation
from fedade.engine.pending import collect
from fedade.experiments.cell import Cell
from fedade.experiments.settings import Experiment
from fedade.runner.checkpoints import CheckpointPlace, Checkpoints, discard, reached_timestep
from fedade.runner.clocks import build_clock, check_precision
from fedade.runner.store import CellFolder, CellStatus, examine
from fedade.runner.trying import TrialRunner
from fedade.scenarios.building import Testbed, build_testbed
from fedade.scenarios.own_testbed import OwnTestbed
from fedade.scenarios.settings import ScenarioSettings
from fedade.tuning.searches import TRIALS
from fedade.tuning.trials import Tuning, fitted, tuned_from_store, tuning_key


@dataclass(frozen=True)
class Task:
    """Cells that one process runs, together where the device gains by it."""

    cells: tuple[Cell, ...]
    store: Path
    """The folder of the run or suite."""
    retry_failed: bool = False
    wait: bool = False
    """For a cell that another process is at work on: wait for its end, instead of leaving it alone."""


@dataclass
class Worker:
    """A process's hands: it runs tasks, and keeps the last testbed for the next, which mostly wants the same."""

    listener: Listener
    testbeds: dict[str, Testbed] = field(default_factory=dict)
    brought: OwnTestbed | None = None
    """The testbed of all cells, where the user made it."""

    def prepare(self, experiment: Experiment) -> FedadeError | None:
        """Train and store the model that an experiment deploys, unless it is there; what hinders it."""
        storage.sweep(cache_dir() / "models")
        try:
            check_precision(experiment)
            self._testbed(experiment)
        except FedadeError as error:
            return error
        except Exception:  # noqa: BLE001 - the cells meet it again, and each records it
            return None
        return None

    def run(self, task: Task) -> list[CellStatus]:
        """Run what is neither finished nor in other hands; what became of every cell, in the task's order."""
        statuses: dict[str, CellStatus] = {}
        with ExitStack() as held:
            mine = []
            for place in (CellFolder(task.store, cell) for cell in task.cells):
                try:
                    held.enter_context(storage.locked(place.lock, task.wait))
                except filelock.Timeout:
                    statuses[place.cell.address] = CellStatus("busy")
                    continue
                status = statuses[place.cell.address] = _opened(place, task.retry_failed)
                if status.state == "open":
                    mine.append(place)
            for place, ended in zip(mine, self._run(mine), strict=True):
                address = place.cell.address
                statuses[address] = replace(ended, set_aside=statuses[address].set_aside)
        return [statuses[cell.address] for cell in task.cells]

    def _run(self, places: Sequence[CellFolder]) -> list[CellStatus]:
        if not places:
            return []
        device = places[0].cell.experiment.execution.device
        try:
            open_ones = [place for place in places if not place.trace.exists()]  # the others say what they ran with
            for place in open_ones:
                place.begin({})  # so that a cell which never starts is told of too
            self._advance(open_ones)
            for place in places:
                discard(place.path)
            statuses = [place.finish() for place in places]
        except Exception as error:  # whatever stops a cell is recorded, and the others go on
            if is_lost(device):
                lost = DeviceLostError(error)
                for place in places:
                    place.fail(lost)
                raise lost from error
            statuses = [place.fail(error) for place in places if len(places) == 1]
        release_memory(device)
        if statuses:
            return statuses
        # The batch fell with one of them; alone, each falls or stands by itself. Outside of `except`, which would hold
        # what the batch had in memory.
        return [status for place in places for status in self._run([place])]

    def _advance(self, places: Sequence[CellFolder]) -> None:
        """Run or continue cells of one method that differ in seed and schedule only. A kill can leave them at different
        timesteps; those that stand at the same one go on together."""
        groups: dict[int, list[CellFolder]] = {}
        for place in places:
            groups.setdefault(reached_timestep(place.path), []).append(place)
        for timestep, group in sorted(groups.items()):
            self._advance_together(group, timestep)

    def _advance_together(self, places: Sequence[CellFolder], timestep: int) -> None:
        experiment = places[0].cell.experiment
        check_precision(experiment)
        testbed = self._testbed(experiment)
        federations, kept = [], []
        for place in places:
            schedule, seed = place.cell.experiment.scenario.schedule, place.cell.seed
            method, constants = _method(place), {}
            if method.constants == "calibrated":
                tuning = self.tuning(method, experiment, testbed)
                method = fitted(method, tuning)
                constants = {"constants": json.dumps(tuning.chosen, sort_keys=True)}
            federations.append(Federation(testbed.scenario(schedule, seed), Seeds(seed), method))
            settings = method.model_dump(mode="json", exclude={"measured_rates"})
            kept.append(CheckpointPlace(place.path, place.cell.method, seed, settings))
            place.begin({**testbed.identity, **constants})
        clock = build_clock(experiment, federations, places[0].path / "states")
        checkpoints = Checkpoints(kept, {**testbed.identity, "version": __version__}, clock.state_folder)
        cells = [place.info for place in places]
        for cell in cells:
            self.listener.on_start(cell, timestep)
        world = checkpoints.resume(clock)
        for rows in clock.advance(world):
            checkpoints.on_rows(world, rows, world.timestep == clock.num_timesteps)
            for number, cell in enumerate(cells):
                self.listener.on_rows(cell, world.timestep, partial(collect, [rows], number))
        checkpoints.finish(world)

    def tuning(self, method: Method, experiment: Experiment, testbed: Testbed | OwnTestbed | None = None) -> Tuning:
        """Constants of a method for an experiment's deployment, from the store or found now on simulated drift."""
        testbed = testbed or self._testbed(experiment)
        alone = experiment.protocol.model_copy(update={"scored_clients": None, "score_fresh": False})
        simulated = experiment.model_copy(update={"protocol": alone})
        run = TrialRunner(simulated, side_by_side=experiment.execution.on_gpu)
        key = tuning_key(method, testbed.deployment.digest, experiment.scenario, alone.model_dump(mode="json"))
        with storage.locked(cache_dir() / "models" / f".calibrating-{key}.lock"):  # others may be found side by side
            title, path = f"calibrating {experiment.entry.method}", cache_dir() / "models" / f"{key}.tuning.json"
            told = lambda done: self.listener.on_preparation(title, done, TRIALS)  # noqa: E731
            return tuned_from_store(method, testbed.deployment, testbed.held_out, experiment.scenario, run, path, told)

    def _testbed(self, experiment: Experiment) -> Testbed | OwnTestbed:
        """The testbed of an experiment; another one than the last takes its place."""
        if self.brought is not None:
            return self.brought
        execution, scenario = experiment.execution, experiment.scenario
        cache = cache_dir()
        common = scenario.model_copy(update={"schedule": ScenarioSettings().schedule})
        key = repr((common, execution.precision, execution.device, cache, search_path(scenario.data_dir)))
        if key not in self.testbeds:
            self.testbeds.clear()
            title = f"pre-training {scenario.model} on {scenario.dataset}, {scenario.source}"
            progress = partial(self.listener.on_preparation, title)
            self.testbeds[key] = build_testbed(common, execution.device, cache, progress, execution.precision)
        return self.testbeds[key]


def _opened(place: CellFolder, retry_failed: bool) -> CellStatus:
    """What a cell's folder holds; what cannot stay is moved out of the way of another attempt."""
    status = examine(place.path)
    if status.state == "damaged":
        return CellStatus("open", set_aside=place.set_aside())
    if status.state == "failed" and retry_failed:
        place.forget_failure()
        return CellStatus("open")
    return status


def _method(place: CellFolder) -> Method:
    """A cell's method; one that replays rates is given all those of the cell that it takes them from."""
    lending = place.cell.lender
    if lending is None:
        return place.cell.configured
    lender = CellFolder(place.store, lending)
    status = examine(lender.path)
    if status.state != "done":
        raise FedadeError(
            f"{place.cell.method} replays the learning rates of {lending.method}, which has none here "
            f"(cell {lending.address}: {status.reason or status.state}); run it again with --retry-failed"
        )
    rates = trace.column(trace.read(lender.trace), "learning_rate").tolist()
    return place.cell.experiment.build_method(measured_rates=tuple(rates))
