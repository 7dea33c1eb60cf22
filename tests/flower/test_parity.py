"""Simulator, Flower's simulation engine and a deployment give the same trace for the same seed and data."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from fedade.core import storage
from fedade.flower.overview import read_status
from fedade.flower.server_app import serve
from fedade.flower.wire import TURN

from .deployments import ended, simulate
from .traces import assert_same, simulated, told

METHODS = ("fed-ade", "fix-lr-mid", "tent", "fed-poe", "fed-ccfa")


EVERYONE = {"fed-ade": {"personal_step": "all", "anchor": 0.01, "centred": True, "paces": {"shared": 0.1}}}
ALONE = {"fed-ade": {"personal_step": "all", "paces": {"shared": 0}}}


@pytest.mark.parametrize(
    "method", [*METHODS, "oracle-prior", "fth", "rotta", "fed-ctta", "fed-ade-plus-federated", EVERYONE, ALONE], ids=str
)
def test_real_messages_give_the_simulators_trace(make_task, served, tmp_path, method):
    task = make_task(methods=[method], scenario={"kind": "both"}, protocol={"score_fresh": True})
    served(task)
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


@pytest.mark.parametrize("stream", ["continual", "returning", "correlated", "mixed", "once", "own-pace", "markov"])
def test_protocols_of_the_field_are_those_of_the_simulator(make_task, served, tmp_path, stream):
    task = make_task(methods=["source"], scenario={"kind": "both", "stream": stream})
    served(task)
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


@pytest.mark.parametrize("method", ["source", "fed-avg"])
def test_clients_that_join_late_are_asked_when_they_do(make_task, served, tmp_path, method):
    task = make_task(methods=[method], scenario={"stream": "late", "num_timesteps": 3})
    grid = served(task)
    expected = simulated(task, tmp_path / "simulator")
    assert len(expected) < 12
    assert_same(told(task, tmp_path / "out"), expected)
    assert storage.read_json(tmp_path / "simulator" / "summary.json")["results"]
    turns = Counter(message.metadata.dst_node_id for message in grid.sent if message.metadata.message_type == TURN)
    assert min(turns.values()) < max(turns.values())


def test_a_report_can_be_written_of_a_flower_run(make_task, make_grid, tmp_path):
    task, out = make_task(scenario={"num_timesteps": 1}), tmp_path / "out"
    serve(task, make_grid(task), out)
    assert storage.read_json(out / "summary.json")["results"][0]["method"] == "fed-ade"
    assert (out / "report.html").stat().st_size > 1000
    assert {"config.yaml", "provenance.json", "trace.parquet"} <= {path.name for path in out.iterdir()}


def test_a_client_moves_no_more_bytes_in_a_turn_than_two_bodies_and_8_kb(make_task, served, tmp_path):
    task = make_task()
    served(task)
    shared = 4 * 14_704  # parameters of the default network's body
    assert shared < read_status(tmp_path / "out")["traffic"]["largest_turn"] <= 2 * shared + 8192


@pytest.mark.slow
def test_flowers_simulation_engine_gives_the_simulators_trace(make_task, tmp_path):
    task = make_task(scenario={"num_timesteps": 1})
    assert simulate(task, tmp_path)["finished"]
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[1:])
def test_flowers_simulation_engine_agrees_for_other_methods(make_task, tmp_path, method):
    task = make_task(methods=[method])
    simulate(task, tmp_path)
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def up(task, folder, *words: str) -> subprocess.CompletedProcess[str]:
    plain = task.as_plain()
    del plain["flower"]["clients"], plain["flower"]["share"]
    storage.write_yaml(folder / "task.yaml", plain)
    command = [sys.executable, "-m", "fedade", "flower", "up", str(folder / "task.yaml"), "--json"]
    clients = str(task.experiment.scenario.num_clients)
    return subprocess.run([*command, "--clients", clients, *words], capture_output=True, text=True)


@pytest.mark.slow
def test_a_deployment_with_tls_and_authentication_gives_the_simulators_trace(make_task, tmp_path):
    task = make_task(scenario={"num_clients": 2, "num_timesteps": 1}, protocol={"rounds": 1})
    done = up(task, tmp_path, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["method"] == "fed-ade"
    assert ended(tmp_path / "out")
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[1:])
def test_a_deployment_agrees_for_other_methods(make_task, tmp_path, method):
    task = make_task(methods=[method], scenario={"num_clients": 2})
    done = up(task, tmp_path, "--out", str(tmp_path / "out"), "--insecure")
    assert done.returncode == 0, done.stderr
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_fleet_of_one_client_has_the_simulators_numbers_however_far_it_moves(make_task, served, tmp_path):
    task = make_task(
        scenario={"num_clients": 1, "num_timesteps": 4},
        protocol={"participation": 1.0},
        flower={"outlier_factor": 1.001},  # every step that is longer than the median one would be scaled back
    )
    served(task)
    status = read_status(tmp_path / "out")
    assert status["scaled_back"] == {}
    assert [member["timestep"] for member in status["members"]] == [4]
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))
