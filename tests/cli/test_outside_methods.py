"""Methods of other packages, by import path and by entry point, under the same contract."""

import json
import sys
from pathlib import Path

import pytest

import fedade.methods as fedade_methods
from fedade.checking.checks import CHECKS
from fedade.checking.trials import BrokenPromiseError, MethodTrial, trial_scenarios
from fedade.methods import method_class

from .conftest import TINY

PLUGIN = Path(__file__).parent.parent / "plugin"


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The package as if it were installed: its folder, with its metadata, is on Python's path."""
    monkeypatch.syspath_prepend(str(PLUGIN))


def test_a_method_is_run_by_its_path_and_by_its_entry_point(fedade):
    paths = ("outside_methods:Smoothed", "smoothed")
    words = [word for path in paths for word in ("--method", path)]
    done = fedade("run", *TINY, *words, "--set", "smoothed.momentum=0.9", "--json", "--out", "r", check=True)
    by_path, by_name = json.loads(done.stdout)["results"]
    assert (by_path["method"], by_name["method"]) == paths
    assert by_path["accuracy_post"] != by_name["accuracy_post"], "a setting of one of them"
    again = ("--set", "outside_methods:Smoothed.momentum=0.9", "--method", paths[0], "--json", "--out", "r2")
    (same,) = json.loads(fedade("run", *TINY, *again, check=True).stdout)["results"]
    assert same["accuracy_post"] == by_name["accuracy_post"]


def test_workers_find_it_too(fedade):
    words = ("--method", "smoothed", "--method", "outside_methods:Smoothed", "--jobs", "2", "--json", "--out", "r")
    done = fedade("run", *TINY, *words, check=True)
    assert len(json.loads(done.stdout)["results"]) == 2


def test_a_module_of_the_current_folder_is_found(fedade, tmp_path):
    (tmp_path / "users_method.py").write_text("from outside_methods import Smoothed\nclass Mine(Smoothed):\n    pass\n")
    words = ("run", *TINY, "--method", "users_method:Mine", "--json", "--out", "r")
    assert json.loads(fedade(*words, check=True).stdout)["results"]


def test_a_changed_method_is_run_again(fedade, tmp_path):
    def finished_cells(comment: str) -> int:
        text = f"from outside_methods import Smoothed\nclass Edited(Smoothed):\n    pass  # {comment}\n"
        (tmp_path / "edited.py").write_text(text)
        sys.modules.pop("edited", None)
        fedade("run", *TINY, "--method", "edited:Edited", "--out", "r", check=True)
        return len(list((tmp_path / "r" / "cells").glob("*/result.json")))

    assert [finished_cells("a"), finished_cells("a"), finished_cells("another")] == [1, 1, 2]


@pytest.mark.parametrize("kind", ["methods", "settings"])
def test_lists_have_it_whatever_else_is_installed(fedade, monkeypatch, kind):
    installed = fedade_methods.installed_methods()
    monkeypatch.setattr(fedade_methods, "installed_methods", lambda: {"gone": "no_such_module:Method", **installed})
    done = fedade("list", kind, "--json", check=True)
    assert "smoothed" in {entry["name"] for entry in json.loads(done.stdout)}
    assert "method gone cannot be imported (No module named 'no_such_module')" in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("outside_methods:Nothing", "method outside_methods:Nothing cannot be imported"),
        ("no_such_module:Method", "in the current folder or on PYTHONPATH"),
        ("outside_methods:NOT_A_METHOD", "is a dict; it must be a class that derives from fedade.Method"),
        ("outside_methods:Lacking", "lacks about, observe, predict; docs/your-method.md shows a whole one"),
        ("smoothd", "unknown method 'smoothd'; did you mean smoothed?"),
    ],
)
def test_what_is_no_method_is_one_line(fedade, name, told):
    for command in (("run", "--method", name), ("check-method", name)):
        done = fedade(*command)
        assert done.returncode == 2
        assert told in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_setting_that_it_does_not_have_is_named(fedade):
    done = fedade("run", "--method", "smoothed", "--set", "smoothed.momentun=1")
    assert "smoothed.momentun: there is no such setting of smoothed; did you mean momentum?" in done.stderr


def test_a_good_method_passes_every_check(fedade):
    done = fedade("check-method", "smoothed", "--set", "momentum=0.9", check=True)
    lines = done.stdout.strip().splitlines()
    assert len(lines) >= 10
    assert all(line.startswith("pass  ") for line in lines)


def test_broken_promises_are_named(fedade):
    done = fedade("check-method", "outside_methods:Asking", "--json")
    assert done.returncode == 1
    checks = json.loads(done.stdout)["checks"]
    assert checks["clients-together-are-clients-alone"]
    assert checks["is-a-method"] is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Logarithms", "predict gives rows that are no probabilities"),
        ("OneAnswer", "predict gives [10] for 20 inputs, not probabilities [20, 10]"),
        ("Planless", "observe gives a tensor [10], not (state, plan)"),
        ("Growing", "observe gives a state [20], and the one it was given is [10]"),
        ("Counting", "begin gives a state that holds a int; make it a tensor"),
        ("Dicing", "predict draws from PyTorch's generator; draw from ctx.key"),
        ("Failing", "ValueError: out of luck (__init__.py, line "),
    ],
)
def test_the_first_failure_says_what_to_mend_and_is_not_repeated(fedade, name, told):
    done = fedade("check-method", f"outside_methods:{name}")
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 1
    assert told in failures[0]
    assert done.stderr == ""
    reasons = [line.split(": ", 1)[1] for line in failures]
    spelled_out = [reason for reason in reasons if not reason.startswith("as ")]
    assert len(set(spelled_out)) == len(spelled_out)


def test_settings_are_named_as_for_a_run_or_without_the_method(fedade):
    for setting in ("momentun", "smoothed.momentun"):
        done = fedade("check-method", "smoothed", "--set", f"{setting}=1")
        assert "smoothed.momentun: there is no such setting of smoothed; did you mean momentum?" in done.stderr


@pytest.mark.parametrize(
    ("name", "broken"),
    [("Guessing", "same-bits"), ("Mutating", "nothing-is-mutated"), ("WritingTheSame", "nothing-is-mutated")],
)
def test_a_broken_promise_is_found(name, broken, cache):
    method = method_class(f"outside_methods:{name}")()
    with pytest.raises(BrokenPromiseError):
        CHECKS[broken](MethodTrial(method, trial_scenarios(Path(cache))))
