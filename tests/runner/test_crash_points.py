"""Whatever ends a run at whatever operation on files, it is started again to the same table, and nothing is left."""

import re
from pathlib import Path

import pytest

from fedade.checking.trials import SMALL
from fedade.core import trace
from fedade.experiments.settings import Experiment, experiment_from
from fedade.products.run_folder import run
from fedade.runner import checkpoints

from .crash_points import KILLED, REFUSED, crashing, ended_with

LEFT_BEHIND = re.compile(r"\..*\.tmp|rows-.*|states.*|world\..*|failure\.json|.*\.corrupt-.*")


@pytest.fixture
def experiment(cache, monkeypatch) -> Experiment:
    """A cell that saves its state after each of three timesteps."""
    monkeypatch.setattr(checkpoints, "SAVE_SHARE", float("inf"))
    return experiment_from({"scenario": {**SMALL, "num_timesteps": 3}, "methods": ["tent"], "seeds": [7]})


def table(folder: Path):
    return trace.read(folder / "trace.parquet").to_pydict()


def check(experiment: Experiment, tmp_path: Path, full: bool, stride: int) -> None:
    """Crash at the first dozen operations, before and around the claim, and at each further one of a stride."""
    whole, stuck, others, left = tmp_path / "whole", [], [], []
    with crashing(whole, None) as operations:
        run(experiment, whole)
    assert len(operations) > 40
    for at in sorted({*range(12), *range(0, len(operations), stride)}):
        folder = tmp_path / f"crash-{at}"
        code = ended_with(lambda folder=folder: run(experiment, folder), folder, at, full)
        assert code == KILLED or (full and code in (0, REFUSED, 1)), (operations[at], code)
        where = f"{at}: {operations[at]}"
        try:
            run(experiment, folder)
        except Exception as error:  # noqa: BLE001 - all of them are told together
            stuck.append(f"{where}: {error}")
            continue
        if table(folder) != table(whole):
            others.append(where)
        left += [f"{where}: {path.name}" for path in folder.rglob("*") if LEFT_BEHIND.fullmatch(path.name)]
    assert (stuck, others, left) == ([], [], [])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.usefixtures("without_reports")
def test_a_run_ends_the_same_whatever_operation_it_was_cut_off_at(experiment, tmp_path, full):
    check(experiment, tmp_path, full, stride=8)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_a_run_ends_the_same_after_a_crash_at_every_operation(experiment, tmp_path, full):
    check(experiment, tmp_path, full, stride=1)
