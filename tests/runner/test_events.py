"""What listeners hear of a run: every cell's beginning, timesteps and end, from any process, also of a resumed one."""

import numpy as np
import pytest

from fedade.core import trace
from fedade.core.events import Listener
from fedade.experiments.presets import PRESETS
from fedade.experiments.settings import experiment_from, merged
from fedade.products.run_folder import run
from fedade.runner.checkpoints import Checkpoints

TIMESTEPS, CLIENTS = 3, 6


class Hearing(Listener):
    """Notes down all it hears."""

    def __init__(self, wants_rows=False):
        self.wants_rows = wants_rows
        self.events = []
        self.rows = {}

    def on_plan(self, cells, done, failed):
        self.events.append(("plan", cells, done, failed))

    def on_start(self, cell, timestep):
        self.events.append(("start", cell.title, timestep))

    def on_rows(self, cell, timestep, rows):
        self.events.append(("rows", cell.title, timestep))
        if self.wants_rows:
            self.rows.setdefault(cell.title, []).append(rows())

    def on_end(self, cell, result):
        self.events.append(("end", cell.title, round(result["accuracy_post"], 6)))

    def on_failure(self, cell, reason):
        self.events.append(("failure", cell.title, reason))

    def of(self, title):
        return [event for event in self.events if event[1] == title]


def experiment(*methods, **settings):
    own = {"scenario": {"num_clients": CLIENTS, "num_timesteps": TIMESTEPS, "samples": 10}, "methods": methods}
    return experiment_from(merged(merged(PRESETS["digits-label"](), own), settings))


@pytest.fixture(autouse=True)
def _cache(cache, without_reports, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", cache)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_timestep_yields_its_rows_to_listeners(tmp_path, jobs):
    hearing = Hearing(wants_rows=True)
    done = run(experiment("source", "fed-ade"), tmp_path, hearing, jobs)
    accuracy = {result.method: round(result.accuracy_post, 6) for result in done.results}
    assert hearing.events[0] == ("plan", 2, 0, 0)
    for title in ("source", "fed-ade"):
        assert hearing.of(title) == [
            ("start", title, 0),
            *(("rows", title, timestep) for timestep in range(1, TIMESTEPS + 1)),
            ("end", title, accuracy[title]),
        ]
        stored = trace.where(trace.read(tmp_path / "trace.parquet"), method=title)
        heard = np.concatenate([rows["accuracy_post"] for rows in hearing.rows[title]])
        np.testing.assert_array_equal(heard, trace.column(stored, "accuracy_post"))


def test_a_finished_run_is_heard_of_as_done(tmp_path):
    run(experiment("source"), tmp_path)
    hearing = Hearing()
    run(experiment("source"), tmp_path, hearing)
    assert hearing.events == [("plan", 1, 1, 0)]


def test_a_failure_is_heard_of_with_its_reason_and_the_others_go_on(tmp_path):
    hearing = Hearing()
    diverging = {"fed-ade": {"rate": {"low": 1e30, "high": 1e30}}}
    done = run(experiment(diverging, "source"), tmp_path, hearing)
    (failure,) = [event for event in hearing.of("fed-ade") if event[0] == "failure"]
    assert "the model diverged" in failure[2]
    assert [(cell.title, status.reason) for cell, status in done.failed] == [("fed-ade", failure[2])]
    assert [result.method for result in done.results] == ["source"]


def test_what_a_listener_raises_ends_its_cell_and_is_recorded(tmp_path):
    class Broken(Hearing):
        def on_rows(self, cell, timestep, rows):
            raise RuntimeError("no space left for my notes")

    done = run(experiment("source"), tmp_path, Broken())
    assert [status.reason for _, status in done.failed] == ["RuntimeError: no space left for my notes"]


def test_a_resumed_run_says_where_it_goes_on(tmp_path, monkeypatch):
    save = Checkpoints.on_rows

    def cut(self, world, rows, last):
        save(self, world, rows, True)
        if world.timestep == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "on_rows", cut)
        with pytest.raises(KeyboardInterrupt):
            run(experiment("fed-ade"), tmp_path)
    hearing = Hearing()
    run(experiment("fed-ade"), tmp_path, hearing)
    assert [event[:3] for event in hearing.of("fed-ade")][:2] == [("start", "fed-ade", 2), ("rows", "fed-ade", 3)]


@pytest.mark.parametrize("scored", [None, 2])
def test_states_in_files_go_on_from_a_kill_to_the_same_bits_and_leave_nothing_behind(tmp_path, monkeypatch, scored):
    save = Checkpoints.on_rows

    def cut(self, world, rows, last):
        if world.timestep == 2:
            raise KeyboardInterrupt
        save(self, world, rows, True)

    settings = {"execution": {"client_state": "file"}, "protocol": {"scored_clients": scored}}
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "on_rows", cut)
        with pytest.raises(KeyboardInterrupt):
            run(experiment("fed-ade", **settings), tmp_path / "cut")
    assert list(tmp_path.rglob("states-000001/*.bin")), "the world after the first timestep, though another one ran"
    run(experiment("fed-ade", **settings), tmp_path / "cut")
    run(experiment("fed-ade", protocol={"scored_clients": scored}), tmp_path / "whole")
    cut_short, whole = (trace.read(tmp_path / name / "trace.parquet") for name in ("cut", "whole"))
    for name in whole.column_names:
        np.testing.assert_array_equal(trace.column(cut_short, name), trace.column(whole, name), err_msg=name)
    assert not list(tmp_path.rglob("*.bin"))
