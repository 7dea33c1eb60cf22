"""The folder of `fedade bench`: the cells of a suite, and the tables and figures that are made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedade.core.events import Listener
from fedade.core.paths import SUITE
from fedade.core.version import __version__
from fedade.experiments.cell import SCHEMA, Cell
from fedade.experiments.suites.grid import Suite
from fedade.products.suite_products import finish
from fedade.products.suite_report import write_suite_report
from fedade.runner.executors import executor_of
from fedade.runner.running import CellsRun, prepare, run_cells, unfinished
from fedade.runner.store import claim


@dataclass(frozen=True)
class SuiteRun:
    """What became of a suite's cells, and the files that were made of them."""

    suite: str
    cells: CellsRun
    written: list[Path]

    def as_plain(self) -> dict[str, Any]:
        """What `--json` prints."""
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
