"""`fedade bench`: what a suite leaves, what is never run again, what is refused."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedade.core import trace
from fedade.core.threads import is_lost
from fedade.runner import work
from fedade.runner.clocks import build_clock


def told(done):
    """The cells of a printed object, by row and schedule."""
    return {(one["labels"]["row"], one["labels"]["schedule"]): one for one in json.loads(done.stdout)["cells"]}


@pytest.fixture
def tracks(monkeypatch):
    """Every cell that is run, by its address and its method."""
    ran: list[tuple[str, str]] = []

    def counted(experiment, federations, states):
        ran.append((states.parent.name, experiment.entry.method))
        return build_clock(experiment, federations, states)

    monkeypatch.setattr(work, "build_clock", counted)
    return ran


def test_a_suite_leaves_everything_that_it_promises(bench, tmp_path, tracks):
    done = bench("tiny", "--out", "t", "--json", code=0)
    printed = json.loads(done.stdout)
    assert printed["suite"] == "tiny"
    assert Path(printed["folder"]) == tmp_path / "t"
    assert printed["failed"] == []
    assert printed["wall_seconds"] > 0
    assert len(printed["cells"]) == 8
    assert len(tracks) == 8
    for one in printed["cells"]:
        folder = tmp_path / "t" / "cells" / one["cell"]
        assert {path.name for path in folder.iterdir()} == {"cell.json", "result.json", "trace.parquet"}
        said = json.loads((folder / "cell.json").read_text())
        assert said["labels"] == one["labels"]
        assert said["provenance"]["device"] == "cpu"
        table = trace.read(folder / "trace.parquet")
        assert len(table) == 6 * 3
        assert one["status"] == "done"
        assert one["accuracy_post"] == pytest.approx(trace.column(table, "accuracy_post").mean())
    with (tmp_path / "t" / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["cell"] for line in lines] == [one["cell"] for one in printed["cells"]]
    assert [float(line["accuracy_post"]) for line in lines] == [one["accuracy_post"] for one in printed["cells"]]
    assert {line["status"] for line in lines} == {"done"}
    text = bench("tiny", "--out", "t", code=0)
    assert "Fed-ADE" in text.stdout
    assert "tiny: 8 of 8 cells done" in text.stdout
    assert "8/8 0 running, 0 failed" in text.stderr
    assert len(tracks) == 8, "finished cells are not run again"
    for name in ("tables.txt", "tables.md", "tables.tex", "tables.csv"):
        assert (tmp_path / "t" / name).stat().st_size > 0


def test_replayed_rates_are_those_of_the_same_scenario(bench, tmp_path):
    cells = told(bench("tiny", "--out", "t", "--only", "row=fix-lr-mean,Fed-ADE", "--json", code=0))
    for schedule in ("lin", "squ"):
        mean, adaptive = (cells[row, schedule]["learning_rate_mean"] for row in ("fix-lr-mean", "Fed-ADE"))
        assert mean == pytest.approx(adaptive, rel=1e-5)
    assert cells["Fed-ADE", "lin"]["learning_rate_mean"] != cells["Fed-ADE", "squ"]["learning_rate_mean"]


def test_a_part_brings_what_it_needs_and_the_rest_joins_later(bench, tmp_path, tracks):
    part = told(bench("tiny", "--out", "t", "--only", "method=fix-lr-mean", "--only", "schedule=lin", "--json", code=0))
    assert list(part) == [("fix-lr-mean", "lin")]
    assert [method for _, method in tracks] == ["fed-ade", "fix-lr-mean"]
    whole = told(bench("tiny", "--out", "t", "--json", code=0))
    assert len(tracks) == 8
    assert whole["fix-lr-mean", "lin"] == part["fix-lr-mean", "lin"]
    with (tmp_path / "t" / "results.csv").open() as file:
        assert [line["row"] for line in csv.DictReader(file)] == ["source", "FTH", "Fed-ADE", "fix-lr-mean"] * 2


def test_seeds_can_be_chosen_and_share_a_folder(bench, tmp_path, tracks):
    bench("tiny", "--out", "t", "--only", "method=source", code=0)
    other = json.loads(bench("tiny", "--out", "t", "--only", "method=source", "--seed", "5", "--json", code=0).stdout)
    assert [one["labels"]["seed"] for one in other["cells"]] == [5, 5]
    assert len(tracks) == 4
    with (tmp_path / "t" / "results.csv").open() as file:
        assert [line["seed"] for line in csv.DictReader(file)] == ["0", "5"] * 2


@pytest.mark.slow
def test_several_processes_give_the_same_bits(bench, tmp_path):
    one = told(bench("tiny", "--out", "one", "--json", code=0))
    two = told(bench("tiny", "--out", "two", "--jobs", "2", "--json", code=0))
    assert one.keys() == two.keys()
    for key, cell in one.items():
        assert {**cell, "seconds": 0} == {**two[key], "seconds": 0}
        first, second = (
            trace.read(tmp_path / name / "cells" / cell["cell"] / "trace.parquet") for name in ("one", "two")
        )
        for column in first.column_names:
            np.testing.assert_array_equal(trace.column(first, column), trace.column(second, column), err_msg=column)


def test_a_failed_cell_is_recorded_and_the_others_go_on(bench, tmp_path, tracks):
    done = bench("faulty", "--out", "f", "--json", code=1)
    printed = json.loads(done.stdout)
    cells = told(done)
    assert [one["labels"]["row"] for one in printed["failed"]] == ["diverging", "replaying"] * 2
    assert {row for (row, _), one in cells.items() if one["status"] == "done"} == {"source", "FTH"}
    diverged, replaying = cells["diverging", "lin"], cells["replaying", "lin"]
    assert "the model diverged" in diverged["reason"]
    assert f"cell {diverged['cell']}" in replaying["reason"]
    assert "the model diverged" in replaying["reason"], "the reason of the cell that it needs"
    failure = json.loads((tmp_path / "f" / "cells" / diverged["cell"] / "failure.json").read_text())
    assert failure["reason"] == diverged["reason"]
    assert "Traceback" in failure["traceback"]

    before = len(tracks)
    text = bench("faulty", "--out", "f", code=1)
    assert len(tracks) == before, "failed cells are run again only when asked"
    assert f"(cell {diverged['cell']}): {diverged['reason']}" in text.stdout
    assert "faulty: 4 of 8 cells done" in text.stdout
    bench("faulty", "--out", "f", "--retry-failed", "--json", code=1)
    assert {method for _, method in tracks[before:]} == {"fed-ade"}, "what it needs failed again, so it did not start"
    with (tmp_path / "f" / "results.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["status"] == "failed"]
    assert [line["row"] for line in lines] == ["diverging", "replaying"] * 2
    assert {line["accuracy_post"] for line in lines} == {""}, "never a number"


def test_a_cell_that_failed_for_a_passing_reason_can_be_mended(bench, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no space\nleft on device")

    with monkeypatch.context() as passing:
        passing.setattr(work, "build_clock", broken)
        failed = json.loads(bench("tiny", "--out", "t", "--only", "method=source", "--json", code=1).stdout)["failed"]
    assert {one["reason"] for one in failed} == {"RuntimeError: no space left on device"}
    mended = json.loads(
        bench("tiny", "--out", "t", "--only", "method=source", "--retry-failed", "--json", code=0).stdout
    )
    assert mended["failed"] == []
    assert not list((tmp_path / "t").rglob("failure.json"))


def test_a_full_gpu_is_told_in_one_line_with_the_remedy(bench, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of")

    monkeypatch.setattr(work, "build_clock", full)
    failed = json.loads(bench("tiny", "--out", "t", "--only", "method=source", "--json", code=1).stdout)["failed"]
    (reason,) = {one["reason"] for one in failed}
    assert "--jobs" in reason
    assert "--retry-failed" in reason
    assert "MiB" not in reason


def test_a_gpu_that_failed_ends_the_run_in_one_line_and_the_next_goes_on(bench, monkeypatch, tracks):
    """Every later call to it would fail in this process, and with it every cell that is still to be run."""

    def fallen(*_):
        raise torch.AcceleratorError(
            "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"
        )

    def silent(device=None):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    with monkeypatch.context() as failing:
        failing.setattr(work, "build_clock", fallen)
        failing.setattr(torch.cuda, "synchronize", silent)
        failing.setattr(work, "is_lost", lambda _: is_lost("cuda"))
        told = bench("tiny", "--out", "t", "--only", "method=source", "--json", code=2).stderr
    (line,) = [one for one in told.splitlines() if "GPU" in one]
    assert "an illegal memory access was encountered)" in line
    assert "--retry-failed" in line
    again = json.loads(bench("tiny", "--out", "t", "--only", "method=source", "--json", code=1).stdout)
    assert [one["status"] for one in again["cells"]] == ["failed", "done"]
    bench("tiny", "--out", "t", "--only", "method=source", "--retry-failed", "--json", code=0)
    assert len(tracks) == 2


def test_a_cpu_is_never_lost_and_a_gpu_that_answers_is_not(monkeypatch):
    assert not is_lost("cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    assert not is_lost("cuda:0")


def test_too_little_memory_is_told_in_one_line_with_the_remedy(bench, monkeypatch):
    def full(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(work, "build_clock", full)
    failed = json.loads(bench("tiny", "--out", "t", "--only", "method=source", "--json", code=1).stdout)["failed"]
    (reason,) = {one["reason"] for one in failed}
    assert "--set execution.client_state=file" in reason
    assert "--retry-failed" in reason
    assert "alloc_cpu" not in reason


@pytest.mark.parametrize("group", ["protocol", "federation"])
def test_some_clients_alone_can_be_scored_also_under_the_old_key(bench, tmp_path, group):
    words = ["--only", "method=fed-ade", "--only", "schedule=lin", "--set", f"{group}.scored_clients=2"]
    (cell,) = json.loads(bench("tiny", "--out", "t", *words, "--json", code=0).stdout)["cells"]
    table = trace.read(tmp_path / "t" / "cells" / cell["cell"] / "trace.parquet")
    assert len(table) == 2 * 3
    assert len(set(trace.column(table, "client"))) == 2


def test_data_that_are_not_there_fail_their_cells_only(bench, tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("FEDADE_DATA", str(tmp_path / "none"))
    words = ["--only", "dataset=cifar10", "--only", "method=source", "--only", "schedule=lin", "--seed", "0"]
    done = bench("table4", *words, "--data-dir", str(tmp_path / "none"), "--json", code=1)
    (failed,) = json.loads(done.stdout)["failed"]
    assert "no copy of cifar10 in" in failed["reason"]
    assert "fedade data fetch cifar10" in failed["reason"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_rows(path: Path) -> None:
    table = trace.read(path)
    trace.write(path, table.slice(0, len(table) - 1).replace_schema_metadata(table.schema.metadata))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trace.parquet", truncate),
        ("trace.parquet", other_rows),
        ("trace.parquet", Path.unlink),
        ("result.json", truncate),
        ("result.json", lambda path: path.write_text("[]")),
        ("result.json", lambda path: path.write_text('{"result": {}, "trace": {}}')),
    ],
)
def test_a_damaged_cell_is_named_set_aside_and_run_again(bench, tmp_path, tracks, name, damage):
    words = ["tiny", "--out", "t", "--only", "method=source"]
    whole = told(bench(*words, "--json", code=0))
    folder = tmp_path / "t" / "cells" / whole["source", "lin"]["cell"]
    damage(folder / name)
    again = bench(*words, code=0)
    aside = folder.with_suffix(".corrupt-1")
    assert f"damaged, set aside and run again: digits label uniform lin source, seed 0: {aside}" in again.stdout
    assert {path.name for path in aside.iterdir()} >= {"cell.json"}
    assert [address for address, _ in tracks[2:]] == [folder.name], "the other one is not run again"
    truncate(folder / "result.json")
    bench(*words, code=0)
    assert folder.with_suffix(".corrupt-2").is_dir()
    last = told(bench(*words, "--json", code=0))
    for key, cell in whole.items():
        assert {**cell, "seconds": 0} == {**last[key], "seconds": 0}


def test_a_process_that_dies_between_trace_and_result_loses_nothing(bench, tmp_path, tracks):
    words = ["tiny", "--out", "t", "--only", "method=source", "--json"]
    whole = told(bench(*words, code=0))
    (tmp_path / "t" / "cells" / whole["source", "lin"]["cell"] / "result.json").unlink()
    assert told(bench(*words, code=0)) == whole
    assert len(tracks) == 2


def test_a_folder_of_something_else_is_refused_and_kept(bench, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "is not empty and holds no suite" in bench("tiny", "--out", "mine", code=2).stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]

    bench("tiny", "--out", "t", "--only", "method=source", code=0)
    refused = bench("faulty", "--out", "t", code=2).stderr
    assert "holds another suite (suite: 'tiny' there, 'faulty' now)" in refused
    said = json.loads((tmp_path / "t" / "suite.json").read_text())
    for key, value in (("version", "0.0.1"), ("schema", 0)):
        (tmp_path / "t" / "suite.json").write_text(json.dumps({**said, key: value}))
        refused = bench("tiny", "--out", "t", code=2).stderr
        assert f"holds another suite ({key}: {value!r} there, {said[key]!r} now)" in refused
        assert len(refused.splitlines()) == 1
    (tmp_path / "t" / "suite.json").write_text("{")
    assert "suite.json is not readable JSON" in bench("tiny", "--out", "t", code=2).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["table9"], "there is no suite 'table9'; choose from smoke, table1"),
        (["tiny", "--only", "colour=red"], "--only colour: cells have no such label"),
        (["tiny", "--only", "row=none"], "--only row=none: no cell has it; choose from source, FTH, Fed-ADE"),
        (["tiny", "--jobs", "0"], "0 is not in the range x>=1"),
        (["tiny", "--seed", "-1"], "-1 is not in the range x>=0"),
        (["tiny", "--device", "cuda"], "no GPU"),
        (["tiny", "--engine", "cloud"], "'cloud' is not one of 'local', 'ray'"),
        (["tiny", "--engine", "ray", "--jobs", "2"], "Ray decides how many cells run at once"),
        (["tiny", "--out", "/proc/none"], "cannot write to"),
        (["tiny", "--data-dir", "nowhere"], "data folder nowhere does not exist"),
        ([], "missing argument 'SUITE'"),
    ],
)
def test_bad_input_is_one_clear_line(bench, words, told):
    done = bench(*words, code=2)
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_figure_without_cells_is_drawn(bench, tmp_path):
    assert "written: figures/schedules.png" in bench("fig-schedules", "--out", "s", code=0).stdout
    assert (tmp_path / "s" / "figures" / "schedules.png").stat().st_size > 10_000
