"""The command line as a user meets it: real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedade.core import storage, trace
from fedade.core.errors import FedadeError

from .conftest import TINY


def test_a_run_leaves_everything_that_it_promises(fedade, tmp_path):
    done = fedade("run", *TINY, "--out", "r", "--json", check=True)
    printed = json.loads(done.stdout)
    assert Path(printed["run_dir"]) == tmp_path / "r"
    shown = ["source", "fix-lr-mid", "fed-ade", "fed-ade-plus", "oracle-prior"]
    assert [one["method"] for one in printed["results"]] == shown
    for one in printed["results"]:
        assert {"method", "seed", "accuracy_post", "accuracy_pre", "learning_rate_mean", "seconds"} <= one.keys()
        assert 0 <= one["accuracy_post"] <= 1
    for name in ("config.yaml", "provenance.json", "trace.parquet", "summary.json", "report.html",
                 "figures/accuracy.png", "figures/signals.png", "figures/priors.png"):  # fmt: skip
        assert (tmp_path / "r" / name).stat().st_size > 0, name
    table = trace.read(tmp_path / "r" / "trace.parquet")
    assert len(table) == 5 * 6 * 3
    wanted = {"method", "seed", "client", "timestep", "accuracy_pre", "accuracy_post", "learning_rate", "s_unc",
              "s_rep", "s", "participated", "n"}  # fmt: skip
    assert wanted <= set(table.column_names)
    assert (np.isnan(trace.column(trace.where(table, method="source"), "learning_rate"))).all()
    assert "http" not in (tmp_path / "r" / "report.html").read_text(), "the page needs no network"

    again = fedade("run", *TINY, "--out", "r", "--json", check=True)
    assert json.loads(again.stdout)["results"] == printed["results"], "a finished run is not run again"
    (tmp_path / "r" / "report.html").unlink()
    fedade("report", "r", check=True)
    assert (tmp_path / "r" / "report.html").exists()

    text = fedade("run", "r/config.yaml", "--out", "r")
    assert text.returncode == 0, "a run's own configuration is a file to run"
    assert "report:" in text.stdout
    assert "fed-ade" in text.stdout


def test_signals_are_shown_where_a_method_takes_no_gradient_steps(fedade, tmp_path):
    done = fedade("run", *TINY, "--method", "fed-ade-plus", "--out", str(tmp_path / "r"), "--json", check=True)
    (result,) = json.loads(done.stdout)["results"]
    assert result["learning_rate_mean"] is None
    assert (tmp_path / "r" / "figures" / "signals.png").stat().st_size > 0
    assert (tmp_path / "r" / "report.html").stat().st_size > 0


def rows_of(folder: Path) -> dict[str, np.ndarray]:
    table = trace.read(folder / "trace.parquet")
    return {name: trace.column(table, name) for name in table.column_names}


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(fedade, tmp_path, cache):
    words = ["run", "--set", "scenario.num_clients=6", "--set", "scenario.num_timesteps=60", "--set",
             "scenario.samples=10", "--method", "fed-ade", "--method", "fed-ade-release"]  # fmt: skip
    fedade(*words, "--out", "whole", "--json", check=True)
    command = [sys.executable, "-m", "fedade", *words, "--out", "killed"]
    environment = {**os.environ, "FEDADE_CACHE": cache}
    worlds = tmp_path / "killed" / "cells"
    for kill in range(2):
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        seen = set(worlds.rglob("*.parquet"))
        deadline = time.monotonic() + 60
        while (
            process.poll() is None
            and time.monotonic() < deadline
            and len(set(worlds.rglob("*.parquet")) - seen) < 2 + kill
        ):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "trace.parquet").exists(), "it was killed before its end"
    fedade("run", "--resume", "killed", check=True)
    whole, killed = rows_of(tmp_path / "whole"), rows_of(tmp_path / "killed")
    assert whole.keys() == killed.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(values, killed[name], err_msg=name)


def test_equal_bounds_from_the_command_line_are_a_fixed_rate(fedade):
    low = ["--set", "fed-ade.rate.low=0.02", "--set", "fed-ade.rate.high=0.02"]
    adaptive = fedade("run", *TINY, *low, "--method", "fed-ade", "--json", check=True)
    fixed = fedade("run", *TINY, "--set", "fix-lr-mid.rate.mid=0.02", "--method", "fix-lr-mid", "--json", check=True)
    one, other = (json.loads(done.stdout)["results"][0] for done in (adaptive, fixed))
    assert {key: one[key] for key in ("accuracy_post", "accuracy_pre", "learning_rate_mean")} == {
        key: other[key] for key in ("accuracy_post", "accuracy_pre", "learning_rate_mean")
    }


def test_a_file_that_is_not_yaml_is_named(fedade, tmp_path):
    (tmp_path / "bad.yaml").write_text("scenario: [unclosed\nkind: label")
    done = fedade("run", "bad.yaml")
    assert done.returncode == 2
    assert "bad.yaml is not YAML (line" in done.stderr
    (tmp_path / "list.yaml").write_text("- just\n- a list\n")
    assert "not a mapping" in fedade("run", "list.yaml").stderr


def test_a_folder_with_another_run_is_refused_and_kept(fedade, tmp_path):
    fedade("run", *TINY, "--method", "source", "--out", "r", check=True)
    before = (tmp_path / "r" / "summary.json").read_bytes()
    done = fedade("run", *TINY, "--method", "source", "--set", "scenario.alpha=5", "--out", "r")
    assert done.returncode == 2
    assert "holds another run (scenario.alpha: 0.1 there, 5.0 now)" in done.stderr
    assert (tmp_path / "r" / "summary.json").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused = fedade("run", *TINY, "--out", "mine")
    assert "is not empty and holds no run" in refused.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_truncated_checkpoint_is_named_and_costs_its_own_cell_only(fedade, tmp_path):
    words = ["run", *TINY, "--method", "source", "--method", "fed-ade", "--out", "r"]
    fedade(*words, check=True)
    whole = rows_of(tmp_path / "r")
    paths = (tmp_path / "r").rglob("cell.json")
    (cell,) = [path.parent for path in paths if storage.read_json(path)["labels"]["method"] == "fed-ade"]
    finished = (cell / "trace.parquet").read_bytes()
    for name in ("trace.parquet", "result.json"):
        (cell / name).unlink()
    (cell / "world.safetensors").write_bytes(finished[:40])
    done = fedade("run", "--resume", "r")
    assert done.returncode == 1
    assert "fed-ade failed" in done.stderr
    assert "world.safetensors is damaged" in done.stderr
    assert "source" in done.stdout, "what is done is shown"
    fedade("run", "--resume", "r", check=True)
    for name, values in rows_of(tmp_path / "r").items():
        np.testing.assert_array_equal(values, whole[name], err_msg=name)


def test_a_checkpoint_of_other_weights_is_refused_with_both_named(fedade, tmp_path):
    fedade("run", *TINY, "--method", "fed-ade", "--out", "r", check=True)
    (cell,) = [path.parent for path in (tmp_path / "r").rglob("cell.json")]
    weights = json.loads((cell / "cell.json").read_text())["identity"]["weights"]
    for name in ("trace.parquet", "result.json"):
        (cell / name).unlink()
    storage.save_tensors(cell / "world.safetensors", {}, {"timestep": "1", "spent": "0", "weights": "those of before"})
    done = fedade("run", "--resume", "r")
    assert f"was begun with other weights (those of before there, {weights} now)" in done.stderr


def test_a_failed_start_claims_nothing(fedade, tmp_path):
    assert fedade("run", *TINY, "--set", "scenario.dataset=cifer10", "--out", "r").returncode == 2
    fedade("run", *TINY, "--method", "source", "--out", "r", check=True)


def test_each_row_has_its_own_settings(fedade):
    rows = (
        "methods=[fed-ade, {name: careful, fed-ade: {rate: {low: 5, mid: 5, high: 5}}}, {fix-lr-mid: {batch_size: 50}}]"
    )
    done = fedade("run", *TINY, "--set", rows, "--set", "fix-lr-mid.rate.mid=0.04", "--json", check=True)
    found = {one["method"]: one["learning_rate_mean"] for one in json.loads(done.stdout)["results"]}
    assert found["careful"] == pytest.approx(5), "its bounds are equal"
    assert found["fed-ade"] > 0.031, "the other row keeps its own"
    assert found["fix-lr-mid"] == pytest.approx(0.04)


def test_names_in_brackets_are_shown_as_they_are(fedade):
    done = fedade(
        "run", *TINY, "--set", "methods=[source, {name: '[/red] $x_{', tent: {}}]", "--out", "[bold]", check=True
    )
    assert "[/red] $x_{" in done.stdout
    assert "[bold]/report.html" in done.stdout
    assert "[bold]" in done.stderr


def test_tracking_a_finished_run_says_how_to_record_it(fedade):
    fedade("run", *TINY, "--method", "source", "--out", "r", check=True)
    done = fedade("run", *TINY, "--method", "source", "--out", "r", "--track", "tensorboard", check=True)
    assert "`fedade export r --to tensorboard`" in done.stderr, "nothing of it is computed, hence nothing recorded"


@pytest.mark.parametrize("words", [["digits-both", "--resume", "r"], ["--out", "s", "--resume", "r"]])
def test_resuming_takes_no_other_scenario_or_folder(fedade, words):
    fedade("run", *TINY, "--method", "source", "--out", "r", check=True)
    done = fedade("run", *words)
    assert done.returncode == 2
    assert "leave out" in done.stderr


def test_words_of_the_last_version_are_understood_with_a_line_that_says_how_to_write_them_now(fedade):
    old = ["--set", "federation.participation=0.5", "--set", "method.rate.mid=0.02", "--method", "fix-lr-mid"]
    done = fedade("run", *TINY, *old, "--json", check=True)
    assert "federation.participation is protocol.participation now" in done.stderr
    assert "method.rate is fix-lr-mid.rate now" in done.stderr
    new = ["--set", "protocol.participation=0.5", "--set", "fix-lr-mid.rate.mid=0.02", "--method", "fix-lr-mid"]
    same = json.loads(fedade("run", *TINY, *new, "--json", check=True).stdout)
    assert same == json.loads(done.stdout), "the same run, found again"


def test_who_is_scored_is_part_of_a_run(fedade, tmp_path):
    words = ["--set", "protocol.scored_clients=2", "--method", "fed-ade", "--out", "r", "--json"]
    fedade("run", *TINY, *words, check=True)
    assert len(trace.read(tmp_path / "r" / "trace.parquet")) == 2 * 3


def test_debug_shows_the_traceback(fedade):
    with pytest.raises(FedadeError):
        fedade("--debug", "run", "nonsense")


def test_the_version_is_printed(fedade):
    assert fedade("--version", check=True).stdout.startswith("fedade 0.")


def test_settings_from_a_file_build_on_a_preset(fedade, tmp_path):
    content = {
        "preset": "digits-label",
        "scenario": {"num_clients": 4, "num_timesteps": 2, "samples": 5},
        "methods": ["source"],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    done = fedade("run", "mine.yaml", "--seed", "3", "--seed", "4", "--json", check=True)
    assert [one["seed"] for one in json.loads(done.stdout)["results"]] == [3, 4]


def test_methods_that_replay_rates_are_given_those_of_the_same_seed(fedade, tmp_path):
    words = ["--method", "fix-lr-mean", "--method", "shuffled-lr", "--method", "fed-ade", "--out", "r", "--json"]
    found = json.loads(fedade("run", *TINY, *words, check=True).stdout)["results"]
    rates = {one["method"]: one["learning_rate_mean"] for one in found}
    assert rates["fix-lr-mean"] == pytest.approx(rates["fed-ade"], rel=1e-5)
    table = trace.read(tmp_path / "r" / "trace.parquet")
    own, shuffled = (
        set(trace.column(trace.where(table, method=name), "learning_rate").tolist())
        for name in ("fed-ade", "shuffled-lr")
    )
    assert shuffled <= own
    alone = json.loads(fedade("run", *TINY, "--method", "fix-lr-mean", "--out", "alone", "--json", check=True).stdout)
    assert [one["method"] for one in alone["results"]] == ["fix-lr-mean"]
    assert alone["results"][0]["accuracy_post"] == {one["method"]: one for one in found}["fix-lr-mean"]["accuracy_post"]


def test_several_at_once_give_the_same_bits(fedade, tmp_path):
    words = ["run", *TINY, "--method", "source", "--method", "fed-ade", "--json"]
    fedade(*words, "--out", "one", check=True)
    fedade(*words, "--out", "two", "--jobs", "2", check=True)
    for name, values in rows_of(tmp_path / "one").items():
        np.testing.assert_array_equal(values, rows_of(tmp_path / "two")[name], err_msg=name)


SMALL_AND_LONG = [
    word
    for setting in ("num_clients=6", "samples=10", "num_timesteps=3000")
    for word in ("--set", f"scenario.{setting}")
]
"""Never done before it is interrupted, however busy the machine is."""


def test_ctrl_c_says_how_to_go_on(tmp_path, cache):
    words = ["run", *SMALL_AND_LONG, "--method", "fed-ade"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedade", *words, "--out", "r"],
        cwd=tmp_path, env={**os.environ, "FEDADE_CACHE": cache}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 600  # a busy machine
    while process.poll() is None and time.monotonic() < deadline and not list(tmp_path.rglob("world.safetensors")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "start the same command again to continue" in told
    assert "Traceback" not in told
    assert list(tmp_path.rglob("world.safetensors")), "what was done is kept"


def test_results_become_a_file_and_a_table(fedade, tmp_path):
    fedade("run", "--method", "source", "--out", "r", *TINY, check=True)
    for _ in range(2):
        assert "tiny.csv: 1 cells of r" in fedade("results", "add", "r", "--results", ".", "--name", "tiny").stdout
    document = tmp_path / "d.md"
    document.write_text("\n<!-- results\nfile: tiny.csv\ntable: run\n-->\n<!-- end of results -->\n")
    stale = fedade("results", "write", "d.md", "--results", ".", "--check")
    assert stale.returncode == 2
    assert "not as the results say: d.md" in stale.stderr
    assert "1 of 1 files changed" in fedade("results", "write", "d.md", "--results", ".", check=True).stdout
    assert "| **" in document.read_text().splitlines()[8]
    fedade("results", "write", "d.md", "--results", ".", "--check", check=True)


def test_finished_cells_that_cannot_be_read_are_told(fedade, tmp_path):
    fedade("run", "--method", "source", "--method", "tent", "--out", "r", *TINY, check=True)
    for cell in tmp_path.glob("r/cells/*/cell.json"):
        cell.write_text(cell.read_text().replace('"tent"', '"gone:Tent"'))
    added = fedade("results", "add", "r", "--results", ".", check=True)
    assert "run.csv: 1 cells of r" in added.stdout
    assert "1 finished cells of r cannot be read" in added.stderr
    assert "PYTHONPATH" in added.stderr


def test_a_table_may_be_all_that_a_document_has(fedade, tmp_path):
    fedade("run", "--method", "source", "--out", "r", *TINY, check=True)
    fedade("results", "add", "r", "--results", ".", check=True)
    (tmp_path / "d.md").write_text("<!-- results\nfile: run.csv\ntable: run\n-->\n<!-- end of results -->")
    assert "1 of 1 files changed" in fedade("results", "write", "d.md", "--results", ".", check=True).stdout
    assert (tmp_path / "d.md").read_text().startswith("<!-- results\n")
    assert "0 of 1 files changed" in fedade("results", "write", "d.md", "--results", ".", check=True).stdout
