"""Metrics of a fleet, scraped as Prometheus does."""

import socket
import time
import urllib.error
import urllib.request

import pytest

from fedade.core.errors import FedadeError
from fedade.flower.federation import HOST, free_ports
from fedade.flower.server_app import adapt
from fedade.flower.settings import FlowerSettings
from fedade.flower.wire import TURN

from .hostile import node_of, say, turn_of

parser = pytest.importorskip("prometheus_client.parser", reason="pip install 'fedade[prometheus]' to test its metrics")


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = parser.text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in found for one in family.samples}


def test_a_running_fleet_is_scraped_and_afterwards_nobody_listens(make_task, make_grid, tmp_path):
    (port,) = free_ports(1)
    shared = {"quorum": 0.5, "share": ["entropy", "passes"], "metrics": {"port": port}}
    task = make_task(methods=["tent"], scenario={"num_timesteps": 3}, flower=shared)
    grid, seen = make_grid(task), []
    liar, broken = node_of(grid, "client-0002"), node_of(grid, "client-0003")

    def tamper(node, reply):
        if reply.metadata.message_type == TURN:
            if node == liar:
                say(reply.content, samples=-1)
            if node == broken:
                say(reply.content, outcome="failed")
            if turn_of(grid.sent[-1]) == 2:
                seen.append(scraped(port))
        return reply

    grid.tamper = tamper
    begun = time.time()
    adapt(task, grid, tmp_path / "out")
    found = seen[0]
    assert found["fedade_exchange_seconds_count",] == 2
    assert found["fedade_exchange_seconds_sum",] > 0
    assert found["fedade_unanswered_turns_total",] == 4
    assert found["fedade_client_timestep", "client-0000"] == 2
    assert begun <= found["fedade_client_last_seen", "client-0000"] <= time.time()
    assert found["fedade_client_last_seen", "client-0002"] == 0
    assert found["fedade_client_refused_answers_total", "client-0002"] == 2
    assert found["fedade_client_failed_turns_total", "client-0003"] == 2
    assert found["fedade_client_signal", "client-0001", "passes"] > 0
    assert not any("learning_rate" in key for key in found)  # what is not shared is not told
    with pytest.raises(urllib.error.URLError):
        scraped(port)


def test_what_waits_and_what_is_estimated_has_a_name_of_its_own(monkeypatch):
    from fedade.flower.overview import FleetCollector, metrics_at
    from fedade.flower.settings import MetricsSettings

    told = {"waiting": 4.0, "estimated_accuracy": 0.8, "alarm": 0.0, "s": 0.1}
    member = {"name": "ada", "timestep": 1, "last_seen": 5.0, "away": False, "measures": told}
    tallies = {key: {} for key in ("refused", "failed", "quarantined", "scaled_back", "impostors")}
    figures = {"members": [member], "turns": 1, "seconds": 0.5, "unanswered": 0, **tallies}
    (port,) = free_ports(1)
    with metrics_at(MetricsSettings(port=port), lambda: figures):
        found = scraped(port)
    assert found["fedade_client_batches_waiting", "ada"] == 4
    assert found["fedade_client_estimated_accuracy", "ada"] == 0.8
    assert found["fedade_client_signal", "ada", "s"] == 0.1
    assert ("fedade_client_signal", "ada", "alarm") not in found
    assert list(FleetCollector(lambda: {**figures, "members": []}).collect())


def test_a_port_that_is_taken_is_one_line(make_task, make_grid, tmp_path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        task = make_task(methods=["tent"], flower={"metrics": {"port": taken.getsockname()[1]}})
        with pytest.raises(FedadeError, match=r"flower.metrics: 127.0.0.1:\d+ cannot be listened on"):
            adapt(task, make_grid(task), tmp_path / "out")


def test_nobody_outside_is_answered_unless_asked_for():
    assert FlowerSettings().metrics is None
    assert FlowerSettings(metrics={}).metrics.host == HOST
