"""Promises of every registry but the methods': each entry works, and adding one changes no benchmark."""

import importlib
import pkgutil

import numpy as np
import pytest

import fedade.data.known
from fedade.cli import options
from fedade.cli.listing import listed
from fedade.core.seeds import Seeds
from fedade.data.corruptions.registry import CORRUPTIONS, PUBLISHED, STANDARD
from fedade.data.known.digits import digits
from fedade.data.registry import DATASETS, describe
from fedade.data.sensor_corruptions import SENSOR_CORRUPTIONS, SENSOR_STANDARD, corrupt_sensor
from fedade.experiments.suites.grid import PAPER_SCHEDULES
from fedade.listeners import TRACKERS
from fedade.maths.schedules import SCHEDULES, Schedule
from fedade.models import FAMILIES, MODELS
from fedade.reporting.figures import CHARTS, figures
from fedade.scenarios.pools import corruption_names
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import client_schedules

from ..reporting.made_up import made_up_trace


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_can_be_named_and_says_what_it_is(name):
    assert SCHEDULES[name].summary
    paths = client_schedules(ScenarioSettings(schedule=name, num_clients=3, num_timesteps=40), Seeds(0))
    assert paths.shape == (3, 41)
    assert ((paths >= 0) & (paths <= 1)).all()
    assert SCHEDULES[name].random == bool((paths != paths[0]).any()), "every client has a path of its own, or none"


def test_a_new_schedule_is_one_entry_and_no_part_of_the_paper(monkeypatch):
    monkeypatch.setitem(SCHEDULES, "saw", Schedule("a saw", lambda steps, horizon, _: steps % 5 / 5))
    drawn = client_schedules(ScenarioSettings(schedule="saw", variant="release", num_timesteps=10), Seeds(0))
    np.testing.assert_allclose(drawn[0], np.arange(11) % 5 / 5)
    assert PAPER_SCHEDULES == ("lin", "sin", "squ", "ber")
    with pytest.raises(ValueError, match="there is no such schedule; did you mean saw"):
        ScenarioSettings(schedule="saww")


def test_benchmarks_name_their_corruptions(monkeypatch):
    assert set(STANDARD) < set(PUBLISHED) <= set(CORRUPTIONS)
    assert set(SENSOR_STANDARD) <= set(SENSOR_CORRUPTIONS)
    monkeypatch.setitem(SENSOR_CORRUPTIONS, "negative", lambda images, strength, _: (1 - strength) * images)
    shifted = ScenarioSettings(kind="covariate")
    assert corruption_names(digits(), shifted) == SENSOR_STANDARD
    named = shifted.model_copy(update={"corruptions": ("negative",)})
    assert corruption_names(digits(), named) == ("negative",)


@pytest.mark.parametrize("name", SENSOR_CORRUPTIONS)
def test_a_fault_of_the_sensor_grows_with_its_severity(name):
    images = digits().test.inputs[:50]
    distances = [np.abs(corrupt_sensor(images, name, severity).astype(int) - images).mean() for severity in range(6)]
    assert distances[0] == 0
    assert distances == sorted(distances)


def test_every_known_dataset_is_registered_under_its_name(tmp_path):
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(
        fedade.data.known.__path__, "fedade.data.known."
    )]  # fmt: skip
    kinds = {type(spec) for spec in DATASETS.values()}
    known = [value for module in modules for value in vars(module).values() if type(value) in kinds]
    assert {spec.name: spec for spec in known} == dict(DATASETS)
    assert [entry["name"] for entry in describe(tmp_path)] == list(DATASETS)


def test_networks_say_what_they_are():
    assert all(make.__doc__ for make in (*MODELS.values(), *FAMILIES.values()))


def test_help_names_every_tracker():
    assert " or ".join(TRACKERS) == options.TRACKER_NAMES


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_networks_is_listed(family):
    assert [entry for entry in listed("models") if entry["name"].startswith(f"{family}:")]


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_where_a_trace_has_its_columns(name):
    trace = made_up_trace("fed-ade", 0, "lin", clients=4, steps=6, classes=3)
    assert name in figures(trace)
    assert (name in figures(trace.drop_columns(sorted(CHARTS[name].columns)))) == (not CHARTS[name].columns)
