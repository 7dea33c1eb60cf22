"""Whatever ends a suite at whatever operation on files, it is started again to the same tables, and nothing is left."""

import csv

import pytest

from fedade.core import trace
from fedade.core.events import Listener
from fedade.experiments.suites.grid import SuiteRow
from fedade.products import suite_folder
from fedade.products.suite_folder import run_suite
from fedade.runner import checkpoints

from ..runner.crash_points import every, some, survives
from .tiny import suite

ROWS = (SuiteRow("Fed-ADE", "fed-ade"), SuiteRow("fix-lr-mean", "fix-lr-mean"))
"""Of which one needs the other's rates."""
SUITE = suite("crashing", ROWS, timesteps=2, schedules=("lin",))


def run(folder, retry_failed=False):
    done = run_suite(SUITE, SUITE.cells((0,)), folder, "cpu", Listener(), retry_failed=retry_failed)
    assert {status.state for _, status in done.cells.cells} == {"done"}


def tables(folder):
    """Every cell's trace and line of results, but for when it was run and how long that took."""
    # As text: what is not a number equals nothing, not even itself.
    traces = {path.parent.name: repr(trace.read(path).to_pydict()) for path in folder.glob("cells/*/trace.parquet")}
    with (folder / "results.csv").open() as file:
        lines = [{**line, "seconds": "", "started": ""} for line in csv.DictReader(file)]
    return traces, lines, sorted(path.name for path in folder.glob("tables.*"))


@pytest.fixture(autouse=True)
def _quick(cache, monkeypatch):
    """States are saved after every timestep, and no page is made, which takes longer than all else."""
    monkeypatch.setattr(checkpoints, "SAVE_SHARE", float("inf"))
    monkeypatch.setattr(suite_folder, "write_suite_report", lambda folder: folder)


def check(place, full, chosen) -> None:
    # What failed because the disk was full is tried again when asked for.
    survives(run, tables, place, full, chosen, again=lambda folder: run(folder, retry_failed=full))


def test_a_suite_ends_the_same_whatever_operation_it_was_cut_off_at(tmp_path):
    check(tmp_path, False, some(stride=48))


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_a_suite_ends_the_same_after_a_crash_at_every_operation(tmp_path, full):
    check(tmp_path, full, every)
