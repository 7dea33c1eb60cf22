"""The folder of `fedade run`: its cells, and what is made of them for people."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.events import Listener
from fedade.core.identity import digest
from fedade.core.paths import CONFIG
from fedade.core.provenance import provenance
from fedade.core.version import __version__
from fedade.experiments.cell import Cell, cells_of
from fedade.experiments.settings import Experiment, experiment_from
from fedade.reporting.figures import figures, save
from fedade.reporting.page import Page, origin, render
from fedade.reporting.page.scenes import Recording, Scene, complete, pack
from fedade.reporting.rendering import document
from fedade.reporting.results import Result, rows, run_tables
from fedade.runner.executors import executor_of
from fedade.runner.running import CellsRun, prepare, run_cells, unfinished
from fedade.runner.store import CellFolder, CellStatus, claim
from fedade.scenarios.own_testbed import OWN_STREAMS, OwnTestbed


@dataclass(frozen=True)
class Run:
    """A run that ended."""

    folder: Path
    results: tuple[Result, ...]
    failed: tuple[tuple[Cell, CellStatus], ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """What `--json` prints and `summary.json` holds."""
        plain: dict[str, Any] = {"run_dir": str(self.folder), "results": [result.asdict() for result in self.results]}
        if self.failed:
            plain["failed"] = [{"row": cell.title, "reason": status.reason} for cell, status in self.failed]
        return plain


def fingerprint(experiment: Experiment) -> str:
    """Eight characters that differ between different experiments."""
    return digest(storage.as_json(experiment.identity()))[:8]


def run(
    experiment: Experiment,
    folder: Path,
    listener: Listener | None = None,
    jobs: int = 1,
    testbed: OwnTestbed | None = None,
) -> Run:
    """Run what is not yet done, then write trace, summary, figures and report page."""
    folder, listener = folder.resolve(), listener or Listener()
    check_device(experiment.execution.device)
    cells, identity = cells_of(experiment), experiment.identity()
    claim(folder, CONFIG, identity, write=False)
    todo = unfinished(cells, folder, retry_failed=True)
    before = (_provenance(folder).get("versions") or {}).get("fedade")
    if todo and before not in (__version__, None):  # one table of results is one version's
        raise FedadeError(
            f"{folder} was begun with fedade {before}, this is {__version__}; finish it with that version, or choose "
            "another folder with --out"
        )
    jobs = min(jobs, max(1, len(todo)))
    with executor_of("local", jobs, experiment.execution.on_gpu, listener, testbed) as executor:
        for error in prepare(todo, executor):
            raise error
        claim(folder, CONFIG, identity)
        if not (folder / "provenance.json").exists():
            storage.write_json(folder / "provenance.json", provenance(experiment.execution.device))
        return finish_run(folder, run_cells(cells, folder, executor, listener, retry_failed=True))


def finish_run(folder: Path, done: CellsRun) -> Run:
    """Write what a run leaves besides its cells, of all that have a result."""
    finished = [cell for cell, status in done.cells if status.state == "done"]
    found = [(str(cell.labels["row"]), status.result) for cell, status in done.cells]
    results = tuple(result._replace(method=row) for row, result in found if result is not None)
    ended = Run(folder, results, tuple(done.failed))
    if finished:
        trace.write(folder / "trace.parquet", trace.concatenate([_named_trace(folder, cell) for cell in finished]))
        storage.write_json(folder / "summary.json", ended.as_plain())
        write_report(folder)
    return ended


def _named_trace(folder: Path, cell: Cell) -> pa.Table:
    """A cell's trace, in which `method` is the name of its row."""
    table = trace.read(CellFolder(folder, cell).trace)
    names = pa.array(np.full(len(table), str(cell.labels["row"])))
    return table.set_column(table.column_names.index("method"), "method", names)


def printed_run_tables(folder: Path, fmt: str) -> str:
    results, experiment = _results_in(folder), experiment_from(storage.read_yaml(folder / CONFIG))
    return document(run_tables(rows(results), _title(experiment)), fmt)


def _title(experiment: Experiment) -> str:
    scenario = experiment.scenario
    if scenario.dataset == OWN_STREAMS:
        return OWN_STREAMS
    return f"{scenario.dataset}: {scenario.kind} shift, schedule {scenario.schedule}"


def _results_in(folder: Path) -> list[Result]:
    path = folder / "summary.json"
    if not path.is_file():
        raise FedadeError(f"{folder} holds no finished run; finish it with `fedade run --resume {folder}`")
    try:
        return [Result(**result) for result in storage.read_json(path)["results"]]
    except (KeyError, TypeError) as error:
        raise FedadeError(f"{path} is no summary of this version ({error}); delete it and resume the run") from error


def write_report(folder: Path) -> Path:
    """Figures and report page of a finished run, from its trace and summary alone."""
    results = _results_in(folder)
    experiment = experiment_from(storage.read_yaml(folder / CONFIG))
    table = complete(trace.read(folder / "trace.parquet"), folder / "trace.parquet")
    save(figures(table), folder / "figures")
    scenario = experiment.scenario
    own = scenario.dataset == OWN_STREAMS
    content = Page(
        title=_title(experiment),
        tables=run_tables(rows(results)),
        scenes=pack([Scene({}, [_recording(table, result) for result in results])]),
        config=experiment.identity(),
        command="fedade.simulate(...)" if own else f"fedade run {shlex.quote(str(folder / CONFIG))}",
        facts={
            "clients": str(scenario.num_clients),
            "timesteps": str(scenario.num_timesteps),
            "samples per batch": str(scenario.samples),
            "model": scenario.model,
            "seeds": ", ".join(map(str, experiment.seeds)),
        },
        provenance=origin(_provenance(folder)),
    )
    storage.write_bytes(folder / "report.html", render(content).encode())
    return folder / "report.html"


def _provenance(folder: Path) -> dict[str, Any]:
    """What the run wrote down about itself; a page can do without."""
    path = folder / "provenance.json"
    return storage.read_json(path) if path.is_file() else {}


def _recording(table: pa.Table, result: Result) -> Recording:
    def read() -> pa.Table:
        return table.filter((pc.field("method") == result.method) & (pc.field("seed") == result.seed))

    return Recording(result.method, result.seed, result.oracle, read)


def check_device(device: str) -> str:
    """A device that PyTorch can use here."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise FedadeError("--device cuda: PyTorch finds no GPU here; use --device cpu")
    return device
