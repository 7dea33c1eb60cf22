"""Whatever ends a run at whatever operation on files, it is started again to the same table, and nothing is left."""

import pytest

from fedade.checking.trials import SMALL
from fedade.core import trace
from fedade.experiments.settings import Experiment, experiment_from
from fedade.products.run_folder import run
from fedade.runner import checkpoints

from .crash_points import every, some, survives


@pytest.fixture
def experiment(cache, monkeypatch) -> Experiment:
    """A cell that saves its state after each of three timesteps."""
    monkeypatch.setattr(checkpoints, "SAVE_SHARE", float("inf"))
    return experiment_from({"scenario": {**SMALL, "num_timesteps": 3}, "methods": ["tent"], "seeds": [7]})


def check(experiment, place, full, chosen) -> None:
    def table(folder):
        return trace.read(folder / "trace.parquet").to_pydict()

    survives(lambda folder: run(experiment, folder), table, place, full, chosen)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.usefixtures("without_reports")
def test_a_run_ends_the_same_whatever_operation_it_was_cut_off_at(experiment, tmp_path, full):
    check(experiment, tmp_path, full, some(stride=24))


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_a_run_ends_the_same_after_a_crash_at_every_operation(experiment, tmp_path, full):
    check(experiment, tmp_path, full, every)
