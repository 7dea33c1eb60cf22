"""Real processes: lost ones, killed runners, and two runners on one folder."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from fedade.core import trace
from fedade.core.events import Listener
from fedade.core.importing import OptionalModule
from fedade.runner import executors, work
from fedade.runner.executors import ProcessLostError, executor_of
from fedade.runner.running import tasks_of
from fedade.runner.work import Task, Worker

from .tiny import LONG, TINY

ROOT = Path(__file__).resolve().parents[2]


def double_or_die(worker, number):
    """Work that kills its own process for some numbers."""
    worker.listener.on_preparation(f"task {number}", 1, 2)
    if number % 10 == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


@pytest.mark.slow
def test_a_lost_process_costs_only_its_own_task():
    heard = []

    class Hearing(Listener):
        def on_preparation(self, *event):
            heard.append(event)

    with executor_of("local", 2, False, Hearing()) as execute:
        answers = dict(execute(double_or_die, [0, 3, 1]))
        again = dict(execute(double_or_die, [2]))
        for idle in active_children():
            idle.kill()
            idle.join()
        later = dict(execute(double_or_die, [4]))
    assert isinstance(answers.pop(3), ProcessLostError)
    assert answers == {0: 0, 1: 2}
    assert again == {2: 4}, "the engine goes on with new processes"
    assert later == {4: 8}, "also when they were lost while there was nothing to do"
    assert ("task 1", 1, 2) in heard


def start(folder, cache, suite, *words, log=None):
    """A runner of its own."""
    environment = {**os.environ, "FEDADE_CACHE": cache} | ({} if log is None else {"TINY_LOG": str(log)})
    command = [sys.executable, "-m", "tests.bench.tiny", "bench", suite, "--out", str(folder), *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def end(process):
    if process.poll() is None:
        process.kill()
        process.communicate()


def wait_for(condition, process=None, seconds=120):
    """Until something is true; False if the process ended before, or time did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        if process is not None and process.poll() is not None:
            return condition()
        time.sleep(0.02)
    return False


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid):
    """Not gone, and no zombie that waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def bits(folder):
    """Every column of every cell's trace."""
    found = {}
    for path in sorted((folder / "cells").glob("*/trace.parquet")):
        table = trace.read(path)
        found |= {(path.parent.name, name): trace.column(table, name) for name in table.column_names}
    return found


@pytest.mark.slow
def test_a_killed_suite_goes_on_and_ends_with_the_same_bits(bench, tmp_path, cache):
    bench("long", "--out", "whole", "--json", code=0)
    killed = tmp_path / "killed"
    process = start(killed, cache, "long", "--jobs", "2")
    assert wait_for(lambda: len(list(killed.rglob("rows-*.parquet"))) > 3, process)
    helpers = children(process.pid)
    assert len(helpers) >= 2
    end(process)
    assert wait_for(lambda: not any(map(is_alive, helpers))), "a killed runner leaves no process behind"
    assert list(killed.rglob("world.safetensors")), "a cell was under way"
    bench("long", "--out", "killed", "--json", code=0)
    whole, mended = bits(tmp_path / "whole"), bits(killed)
    assert whole.keys() == mended.keys()
    for key, values in whole.items():
        np.testing.assert_array_equal(values, mended[key], err_msg=str(key))
    assert not list(killed.rglob("rows-*")), "nothing is left of the way there"


@pytest.mark.slow
def test_two_runners_share_a_folder_and_run_every_cell_once(bench, tmp_path, cache):
    log = tmp_path / "log"
    runners = [start(tmp_path / "t", cache, "tiny", "--json", log=log) for _ in range(2)]
    printed = [json.loads(runner.communicate(timeout=300)[0]) for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0]
    assert printed[0]["cells"] == printed[1]["cells"]
    assert {one["status"] for one in printed[0]["cells"]} == {"done"}
    ran = Counter(log.read_text().splitlines())
    assert set(ran.values()) == {1}
    assert len(ran) == len(TINY.cells((0,)))
    assert not list((tmp_path / "t").rglob("*.corrupt-*"))


def test_a_cell_in_other_hands_is_left_alone_then_waited_for(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", cache)
    cell = LONG.cells((0,))[0]
    process = start(tmp_path, cache, "long", "--only", "method=fed-ade", "--only", "schedule=lin")
    try:
        assert wait_for(lambda: list(tmp_path.rglob("rows-*.parquet")), process)
        (task,) = tasks_of([cell], tmp_path, retry_failed=False)
        (status,) = Worker(Listener()).run(task)
        assert status.state == "busy"
        end(process)  # whoever waits takes over
        (status,) = Worker(Listener()).run(Task((cell,), tmp_path, wait=True))
        assert status.state == "done"
    finally:
        end(process)


def test_cells_that_fill_a_gpu_together_are_those_that_differ_in_seed_and_schedule(tmp_path):
    cells = TINY.cells((0, 1))
    together = tasks_of([cell.computed_on("cuda", None) for cell in cells], tmp_path, retry_failed=False)
    assert [len(task.cells) for task in together] == [4] * 4
    for task in together:
        assert len({cell.method for cell in task.cells}) == 1
    assert [len(task.cells) for task in tasks_of(cells, tmp_path, retry_failed=False)] == [1] * len(cells)


@pytest.fixture
def batch(cache, monkeypatch):
    """Four cells of one method."""
    monkeypatch.setenv("FEDADE_CACHE", cache)
    return tuple(cell for cell in TINY.cells((0, 1)) if cell.method == "fed-ade")


def test_cells_run_together_find_what_they_find_alone(batch, tmp_path):
    worker = Worker(Listener())
    together = worker.run(Task(batch, tmp_path / "together"))
    alone = [worker.run(Task((cell,), tmp_path / "alone"))[0] for cell in batch]
    assert [one.state for one in together] == ["done"] * 4
    for one, other in zip(together, alone, strict=True):
        assert one.result.accuracy_post == pytest.approx(other.result.accuracy_post, abs=1e-3)
        assert one.result.learning_rate_mean == pytest.approx(other.result.learning_rate_mean, rel=1e-4)


def test_cells_run_together_replay_rates_of_their_own(batch, tmp_path):
    worker = Worker(Listener())
    lenders = worker.run(Task(batch, tmp_path))
    lent = {cell.address: one for cell, one in zip(batch, lenders, strict=True)}
    replaying = tuple(cell for cell in TINY.cells((0, 1)) if cell.method == "fix-lr-mean")
    found = worker.run(Task(replaying, tmp_path))
    for cell, one in zip(replaying, found, strict=True):
        expected = lent[cell.lender.address].result.learning_rate_mean
        assert one.result.learning_rate_mean == pytest.approx(expected, rel=1e-4)
    assert len({round(one.result.learning_rate_mean, 9) for one in found}) > 1


def test_a_batch_that_fails_is_run_cell_by_cell(batch, tmp_path, monkeypatch):
    alone = work.build_clock

    def one_diverges(experiment, federations, states):
        if len(federations) > 1 or experiment.seed == 1:
            raise RuntimeError("out of memory" if len(federations) > 1 else "diverged")
        return alone(experiment, federations, states)

    monkeypatch.setattr(work, "build_clock", one_diverges)
    found = Worker(Listener()).run(Task(batch, tmp_path))
    assert {cell.seed: (one.state, one.reason) for cell, one in zip(batch, found, strict=True)} == {
        0: ("done", None),
        1: ("failed", "RuntimeError: diverged"),
    }


@pytest.mark.slow
def test_ray_runs_the_same_cells(bench, tmp_path, cache):
    pytest.importorskip("ray")
    words = ["--only", "method=source,fth", "--only", "schedule=lin", "--json"]
    here = json.loads(bench("tiny", "--out", "here", *words, code=0).stdout)
    process = start(tmp_path / "ray", cache, "tiny", "--engine", "ray", *words)
    there = json.loads(process.communicate(timeout=300)[0])
    assert process.returncode == 0
    assert [{**one, "seconds": 0} for one in there["cells"]] == [{**one, "seconds": 0} for one in here["cells"]]


def test_ray_is_missed_with_a_remedy(bench, monkeypatch):
    monkeypatch.setattr(executors, "ray", OptionalModule("a_ray_that_is_not_there", "ray"))
    done = bench("tiny", "--engine", "ray", code=2)
    assert "pip install 'fedade[ray]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
