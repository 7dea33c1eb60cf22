"""The folder of `fedade bench`: the cells of a suite, the tables and figures that are made of them, and its page."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.events import Listener
from fedade.core.paths import SUITE
from fedade.core.version import __version__
from fedade.experiments.cell import SCHEMA, Cell
from fedade.experiments.suites import suite_of
from fedade.experiments.suites.grid import Suite
from fedade.products.run_folder import printed_run_tables, write_report
from fedade.products.suite_products import finish, recorded
from fedade.reporting import names
from fedade.reporting.grid import Key, row_of, scenario_of
from fedade.reporting.page import Page, origin, render
from fedade.reporting.page.scenes import Recording, Scene, complete, pack
from fedade.reporting.rendering import Table
from fedade.reporting.results import Result, rows, run_tables
from fedade.reporting.tables import printed, row_names, suite_tables
from fedade.runner.executors import executor_of
from fedade.runner.running import CellsRun, prepare, run_cells, unfinished
from fedade.runner.store import Record, claim, records

_MORE_THAN_ONE_LINE = 5
"""Damaged cells that are named one by one."""
_QUESTION = (
    "How well do clients keep up with their own drifting data, without labels? Choose what the plots show; the tables "
    "cover everything."
)


@dataclass(frozen=True)
class SuiteRun:
    """What became of a suite's cells, and the files that were made of them."""

    suite: str
    cells: CellsRun
    written: list[Path]

    def as_plain(self) -> dict[str, Any]:
        return {"suite": self.suite, **self.cells.as_plain()}


def claim_suite(folder: Path, suite: Suite) -> None:
    """Make a folder this suite's; results of another one, or of another version, are refused."""
    claim(folder, SUITE, {"suite": suite.name, "version": __version__, "schema": SCHEMA})


def run_suite(
    suite: Suite,
    cells: Sequence[Cell],
    folder: Path,
    device: str,
    listener: Listener,
    engine: str = "local",
    jobs: int = 1,
    retry_failed: bool = False,
) -> SuiteRun:
    """Run the cells that have no result yet, then write tables, figures and the report page of all that have."""
    folder = folder.resolve()
    claim_suite(folder, suite)
    with executor_of(engine, jobs, device.startswith("cuda"), listener) as executor:
        prepare(unfinished(cells, folder, retry_failed), executor)  # an error is left to the cells, which all record it
        done = run_cells(cells, folder, executor, listener, retry_failed)
    written = finish(suite, folder, listener)
    if any(status.state == "done" for _, status in done.cells):
        written.append(write_suite_report(folder))
    return SuiteRun(suite.name, done, written)


def write_any_report(folder: Path) -> Path:
    return write_suite_report(folder) if (folder / SUITE).is_file() else write_report(folder)


def printed_tables(folder: Path, fmt: str) -> str:
    if not (folder / SUITE).is_file():
        return printed_run_tables(folder, fmt)
    suite = _suite_in(folder)
    return printed(suite.name, [record.outcome for record in recorded(suite, folder)], fmt)


def write_suite_report(folder: Path) -> Path:
    """One page for all cells that ended; what is missing, failed or damaged is told on top."""
    suite = _suite_in(folder)
    ended = recorded(suite, folder)
    done = [record for record in ended if record.status.state == "done"]
    if not done:
        raise FedadeError(f"{folder} holds no finished cell; run `fedade bench {suite.name} --out {folder}` first")
    groups: dict[Key, list[Record]] = {}
    for record in done:
        groups.setdefault(scenario_of(record.outcome), []).append(record)
    packed = pack([_scene(members) for members in groups.values()])
    content = Page(
        title=f"{suite.name}: {suite.summary}",
        question=_QUESTION,
        facts={"cells": str(len(done)), "seeds": ", ".join(map(str, sorted({record.cell.seed for record in done})))},
        notes=[*_gaps(suite, folder, ended), *packed.broken],
        tables=suite_tables(suite.name, [record.outcome for record in ended]),
        scene_tables=[_scene_tables(key, members) for key, members in groups.items()],
        scenes=packed,
        config=_config(suite, groups),
        command=f"fedade bench {suite.name} --out {shlex.quote(str(folder))}",
        provenance=origin(done[0].provenance),
    )
    storage.write_bytes(folder / "report.html", render(content).encode())
    return folder / "report.html"


def _suite_in(folder: Path) -> Suite:
    stored = storage.read_json(folder / SUITE)
    if stored.get("schema") != SCHEMA:
        raise FedadeError(
            f"{folder} has schema {stored.get('schema')} of fedade {stored.get('version')}, this is schema {SCHEMA} of "
            f"fedade {__version__}; report it with the version that made it"
        )
    return suite_of(str(stored.get("suite")))


def _scene(members: Sequence[Record]) -> Scene:
    titles = row_names([row_of(record.outcome) for record in members])
    # Without the letter that `names.title` puts before numbers: the chooser has the label beside it.
    labels = {
        label: names.title(label, value) if isinstance(value, str) else f"{value:g}"
        for label, value in scenario_of(members[0].outcome)
    }
    return Scene(labels, [_recording(record, titles[row_of(record.outcome)]) for record in members])


def _recording(record: Record, title: str) -> Recording:
    def read() -> pa.Table:
        path = record.path / "trace.parquet"
        return complete(trace.read(path), path)

    oracle = record.status.result is not None and record.status.result.oracle
    return Recording(title, record.cell.seed, oracle, read)


def _scene_tables(key: Key, members: Sequence[Record]) -> list[Table]:
    titles = row_names([row_of(record.outcome) for record in members])
    # Source and the oracle keep their registered names, by which the share of the oracle's gain is found.
    found: list[Result] = [
        record.status.result._replace(method=titles[row_of(record.outcome)])
        for record in members
        if record.status.result is not None
    ]
    return run_tables(rows(found), ", ".join(names.title(label, value) for label, value in key))


def _gaps(suite: Suite, folder: Path, ended: Sequence[Record]) -> list[str]:
    """What a reader must know of cells that are not in the tables."""
    seeds = sorted({record.cell.seed for record in ended})
    wanted = {cell.address for cell in suite.cells(seeds)}
    missing = wanted - {record.path.name for record in ended}
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} of the suite's {len(wanted)} cells for seeds {', '.join(map(str, seeds))} have not been "
            f"run; continue with: fedade bench {suite.name} --out {folder}"
        )
    failed = [record for record in ended if record.status.state == "failed"]
    if failed:
        notes.append(f"{len(failed)} cells failed; the reasons are under the tables.")
    damaged = [record for record in records(folder) if record.status.state == "damaged"]
    notes += [f"Left out: {record.status.reason}" for record in damaged[:_MORE_THAN_ONE_LINE]]
    if len(damaged) > _MORE_THAN_ONE_LINE:
        notes.append(f"Left out: {len(damaged) - _MORE_THAN_ONE_LINE} more damaged cells.")
    return notes


def _config(suite: Suite, groups: Mapping[Key, Sequence[Record]]) -> dict[str, Any]:
    """Settings of every scenario and row; what single cells were run with is in their `cell.json`."""
    scenarios, methods = {}, {}
    for key, members in groups.items():
        plain = members[0].cell.experiment.as_plain()
        title = ", ".join(names.title(label, value) for label, value in key)
        scenarios[title] = {"scenario": plain["scenario"], "protocol": plain["protocol"]}
        titles = row_names([row_of(record.outcome) for record in members])
        for record in members:
            settings = record.cell.configured.model_dump(mode="json")
            methods[titles[row_of(record.outcome)]] = {"method": record.cell.method, "settings": settings}
    return {"suite": suite.name, "rows": methods, "scenarios": scenarios}
