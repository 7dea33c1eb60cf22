"""Accuracy without labels: what a client's monitor says, and who is told."""

import numpy as np
import pytest

from fedade.adapter.accuracy_monitor import AccuracyMonitor
from fedade.core import trace
from fedade.flower.client_app import Identity, make_client
from fedade.flower.overview import columns_of, estimated, headline, status_at
from fedade.flower.serving import Served

from .test_turns import told as instruction
from .traces import told

SMALL = {"methods": ["tent"], "scenario": {"num_clients": 1, "num_timesteps": 1, "reference_size": 100}}
ESTIMATE = ("estimated_accuracy", "estimated_low", "estimated_high", "alarm")


@pytest.fixture
def client(make_task, tmp_path):
    def make(**flower):
        who = Identity.of({"client": "client-0001", "state-dir": str(tmp_path)}, {})
        return make_client(make_task(scenario={"num_timesteps": 6, "reference_size": 100}, flower=flower), who, "run")

    return make


def test_clients_tell_the_estimate_that_they_were_asked_to_share_and_the_server_shows_it(make_task, served, tmp_path):
    task = make_task(**SMALL, flower={"monitor": True, "share": ["estimated_accuracy", "alarm"]})
    served(task)
    rows = told(task, tmp_path / "out")
    estimates = trace.column(rows, "estimated_accuracy")
    assert ((estimates > 0) & (estimates < 1)).all()
    assert "estimated_low" not in rows.column_names
    status = status_at(tmp_path / "out")
    assert {"estimated_accuracy", "alarm"} <= set(columns_of(status))
    assert all(0 < member["measures"]["estimated_accuracy"] < 1 for member in status["members"])


def test_without_agreement_the_estimate_stays_with_the_client(make_task, served, tmp_path):
    task = make_task(**SMALL, flower={"monitor": True, "share": ["entropy"]})
    grid = served(task)
    assert not set(ESTIMATE) & set(told(task, tmp_path / "out").column_names)
    names = {name for one in grid.received for name in one.content.config_records["config"]}
    assert not any("accuracy" in name or "alarm" in name for name in names)


def test_the_estimate_is_that_of_the_monitor_over_all_timesteps_and_outlives_a_restart(client):
    first = client(monitor=True)
    served = Served("client-0001")
    answers = [first.take_turn(instruction(turn, 1 + turn, base=turn - 1), served.publish) for turn in range(3)]
    reborn = client(monitor=True)
    answers.append(reborn.take_turn(instruction(3, 4, base=2), served.publish))
    straight = client(monitor=True)
    assert straight.take_turn(instruction(3, 4, base=2)).row.measures == answers[3].row.measures
    watched = reborn.store.load(3).watched
    assert int(watched[0].samples) == 3 * 12  # of all timesteps that were closed
    assert [set(ESTIMATE) <= set(answer.row.measures) for answer in answers[1:]] == [True] * 3
    estimate = served.status()["estimate"]
    assert estimate["estimated_accuracy"] == answers[3].row.measures["estimated_accuracy"]
    assert estimated(estimate) in headline(served.status())
    assert "estimated accuracy" in estimated(estimate)


def test_a_client_whose_monitor_is_switched_on_later_begins_to_estimate(client):
    client().take_turn(instruction(0, 1))
    row = client(monitor=True).take_turn(instruction(1, 2, base=0)).row
    assert 0 < row.measures["estimated_accuracy"] < 1


def test_the_monitor_is_rehearsed_on_the_clients_own_labelled_data(client, monkeypatch):
    seen, rehearsed = [], AccuracyMonitor.rehearsed

    def noted(deployment, held_out, method):
        seen.append((len(held_out[0]), np.bincount(held_out[1], minlength=10)))
        return rehearsed(deployment, held_out, method)

    monkeypatch.setattr(AccuracyMonitor, "rehearsed", noted)
    made = client(monitor=True)
    assert seen[0][0] == len(made.labelled.inputs if made.labelled else made.deployment.reference.inputs)


def test_an_alarm_is_told_with_its_reason():
    assert estimated({}) == ""
    said = {"estimated_accuracy": 0.5, "accuracy_interval": (0.4, 0.6), "alarm": True, "alarm_reason": "it fell"}
    assert estimated(said) == ", estimated accuracy 50% (40% to 60%); alarm: it fell"
