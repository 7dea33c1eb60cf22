"""`fedade tune`: constants that fit a deployed model."""

import json

from .conftest import TINY


def test_trials_are_shown_drawn_and_used(fedade, tmp_path):
    done = fedade("tune", *TINY, "--picture", "trials.svg", "--json", check=True)
    found = json.loads(done.stdout)
    assert len(found["trials"]) == 18
    assert found["chosen"].keys() >= {"rate", "signal", "paces"}
    assert (tmp_path / "trials.svg").read_text().lstrip().startswith("<?xml")
    shown = fedade("tune", *TINY, check=True).stdout
    assert "on simulated drift" in shown
    assert json.dumps({"fed-ade": found["chosen"]}) in shown


def test_a_run_uses_what_was_found_and_says_so(fedade, tmp_path):
    calibrated = ["--set", "tent.constants=calibrated", "--method", "tent", "--out", "r"]
    chosen = json.loads(fedade("tune", *TINY, "--method", "tent", "--json", check=True).stdout)["chosen"]
    fedade("run", *TINY, *calibrated, "--json", check=True)
    (told,) = (tmp_path / "r" / "cells").glob("*/cell.json")
    assert json.loads(json.loads(told.read_text())["identity"]["constants"]) == chosen


def test_what_cannot_be_tuned_is_one_line(fedade):
    done = fedade("tune", *TINY, "--method", "prior-bbse")
    assert done.returncode == 2
    assert "PriorReweighting has no constants to calibrate" in done.stderr


def test_a_picture_that_cannot_be_drawn_is_told_before_the_trials(fedade, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("FEDADE_CACHE", "/proc/none")
    assert "name a file that ends in .svg, .png or .pdf" in fedade("tune", "--picture", "trials.xyz").stderr
    assert "taken is a file" in fedade("tune", "--picture", "taken/trials.svg").stderr
