"""Faults with real processes over loopback: minutes each, so run by `make test-slow`."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedade.core import storage, trace
from fedade.experiments.settings import merged
from fedade.flower.bundle import init_app
from fedade.flower.certificates import LOOPBACK, make_certificates
from fedade.flower.overview import read_status
from fedade.flower.processes import ProcessGroup
from fedade.flower.settings import read_task

from .conftest import SETTINGS
from .deployments import Live
from .traces import assert_same, simulated, told

pytestmark = pytest.mark.slow

EVERYONE = {"quorum": 1.0, "timeout_seconds": 200.0, "retries": 3, "timestep_seconds": 3.0}
"""No turn ends without all of its participants, so that faults may cost time but never change a number; and no run is
over before its fault comes."""


@pytest.fixture
def live(tmp_path):
    """A federation that ends with the test."""
    with ProcessGroup() as processes:
        yield lambda task, **options: Live(processes, task, tmp_path, **options)
        families = [process.family for process in processes.running]
    assert not any(family() for family in families)


def pair(make_task, **settings):
    return make_task(**merged({"scenario": {"num_clients": 2}, "protocol": {"participation": 1.0}}, settings))


def test_a_node_killed_in_a_round_continues_from_its_last_completed_one(make_task, live, tmp_path):
    task = pair(make_task, flower=EVERYONE)
    federation = live(task, secure=True)
    federation.start(*task.flower.clients)
    federation.submit()
    federation.wait_for_turn("client-0001", 1)
    federation.kill(federation.nodes["client-0001"].process)
    assert federation.wait()["finished"]
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_superlink_killed_and_started_again_continues_from_its_checkpoint(make_task, live, tmp_path):
    task = pair(make_task, flower=EVERYONE)
    federation = live(task, secure=True)
    federation.start(*task.flower.clients)
    federation.submit()
    federation.wait_for_timestep(1)
    federation.kill(federation.link)
    federation.start_link()
    federation.submit()
    assert federation.wait()["finished"]
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_late_node_joins_and_a_hanging_one_is_left_behind(make_task, live, tmp_path):
    # The pace leaves a slow machine ten seconds to stop one node, and a minute to start the other.
    paced = {"timestep_seconds": 10.0, "timeout_seconds": 20.0}
    task = make_task(
        methods=["tent"],
        scenario={"num_clients": 3, "num_timesteps": 7},
        flower={"min_clients": 2, "quorum": 0.3, **paced},
    )
    federation = live(task)
    federation.start("client-0000", "client-0001")
    federation.submit()
    federation.wait_for_timestep(1)
    federation.start("client-0002")
    for pid in (hanging := federation.nodes["client-0001"].process.family()):
        os.kill(pid, signal.SIGSTOP)
    assert federation.wait()["finished"]
    for pid in hanging:
        os.kill(pid, signal.SIGCONT)
    found, expected = told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator")
    assert_same(trace.where(found, client=0), trace.where(expected, client=0))
    late, hung = (trace.column(trace.where(found, client=number), "n").tolist() for number in (2, 1))
    assert late[0] == 0
    assert late[-1] > 0
    assert hung[-1] == 0


def test_a_full_disk_costs_its_own_client_only(make_task, live, tmp_path):
    task = make_task(methods=["tent"], scenario={"num_clients": 2, "num_timesteps": 3}, flower={"quorum": 0.5})
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    try:
        (small / "ballast").write_bytes(bytes(48_000))
        federation = live(task)
        federation.start("client-0000")
        federation.start("client-0001", **{"state-dir": str(small)})
        federation.submit()
        assert federation.wait()["finished"]
    finally:
        federation.processes.end_all()  # a node has its socket there
        subprocess.run(["umount", str(small)], check=True)
    found, expected = told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator")
    assert_same(trace.where(found, client=0), trace.where(expected, client=0))
    assert trace.column(trace.where(found, client=1), "n").tolist()[-1] == 0
    assert "No space left" in federation.nodes["client-0001"].process.log.read_text()


POISON = '''
"""A stream that turns its client into an attacker."""
import numpy as np
import torch
from fedade.flower import turns

KIND = {kind!r}
honest = turns.Client._trained

def poisoned(self, *arguments):
    now, sent = honest(self, *arguments)
    first = next(iter(sent))
    if KIND == "nan":
        sent[first] = torch.full_like(sent[first], float("nan"))
    elif KIND == "shape":
        sent[first] = torch.zeros(3)
    else:
        sent = {{name.replace("body", "head"): value for name, value in sent.items()}}
    return now, sent

def batches(client, taken):
    if client == "mallory":
        turns.Client._trained = poisoned
    generator = np.random.default_rng(taken)
    yield generator.integers(0, 255, (12, 1, 8, 8), dtype=np.uint8)
'''


@pytest.mark.parametrize("kind", ["nan", "shape", "head"])
def test_a_client_that_sends_rubbish_is_named_and_left_out(cache, live, tmp_path, monkeypatch, kind):
    (tmp_path / "poisoned_stream.py").write_text(POISON.format(kind=kind))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    flower = {"stream": {"kind": "import", "path": "poisoned_stream:batches"}, "clients": ["ada", "mallory"]}
    above = {"scenario": {"num_clients": 2, "num_timesteps": 1}, "protocol": {"rounds": 1, "participation": 1.0}}
    init_app(tmp_path / "app", merged(merged(SETTINGS, above), {"flower": flower}), lambda *_: None)
    federation = live(read_task(tmp_path / "app"))
    stored = str(tmp_path / "app" / "deployment.safetensors")
    federation.start("ada", "mallory", deployment=stored)
    federation.submit(deployment=stored)
    assert federation.wait()["refused"] == {"mallory": 1}
    rows = told(federation.task, tmp_path / "out")
    assert trace.column(rows, "participated").tolist() == [1, 0]


def test_an_unknown_key_and_a_wrong_certificate_are_refused(make_task, live, tmp_path):
    task = make_task(methods=["tent"], scenario={"num_clients": 2}, flower={"min_clients": 2, "join_seconds": 60.0})
    federation = live(task, secure=True, register=("client-0000",))
    make_certificates(tmp_path / "other", LOOPBACK, (), days=1)
    federation.start("client-0001")
    unknown = federation.nodes.pop("client-0001").process
    deceiving = federation.federation.nodes("client-0000", [{"client": "client-0000"}])
    own = str(federation.federation.certificates / "ca.crt")
    deceiving.command = [str(tmp_path / "other" / "ca.crt") if word == own else word for word in deceiving.command]
    deceived = federation.processes.start(deceiving)
    deadline = time.monotonic() + 180
    while unknown.ended() is None and time.monotonic() < deadline:
        time.sleep(0.5)
    assert unknown.ended() not in (None, 0)
    time.sleep(5)
    assert "certificate" in deceived.log.read_text().lower() or deceived.ended() not in (None, 0)
    assert not list(tmp_path.glob("state/**/turn-*"))


def test_twenty_kills_at_random_moments_lose_and_change_nothing(make_task, live, tmp_path):
    task = pair(make_task, scenario={"num_timesteps": 6}, flower={**EVERYONE, "retries": 20})
    federation = live(task)
    federation.start(*task.flower.clients)
    federation.submit()
    chance = random.Random(20)
    for _ in range(20):
        time.sleep(chance.uniform(0.5, 12))
        victim = chance.choice(sorted(federation.nodes))
        federation.kill(federation.nodes[victim].process)
        federation.nodes[victim].revive()
    assert federation.wait(1200.0)["finished"]
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_trial_that_is_interrupted_leaves_no_process_and_goes_on_when_it_is_started_again(make_task, tmp_path):
    task = pair(make_task, methods=["tent"], flower={"timestep_seconds": 5.0})  # not over before it is interrupted
    plain = task.as_plain()
    del plain["flower"]["clients"]
    storage.write_yaml(tmp_path / "task.yaml", plain)
    words = [
        "flower",
        "up",
        str(tmp_path / "task.yaml"),
        "--clients",
        "2",
        "--insecure",
        "--out",
        str(tmp_path / "out"),
    ]
    command = [sys.executable, "-m", "fedade", *words]
    trial = subprocess.Popen(command)
    deadline = time.monotonic() + 240
    while not (tmp_path / "out" / "flower.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    trial.send_signal(signal.SIGINT)
    assert trial.wait(60) == 130
    assert not processes_that_mention(tmp_path)
    assert subprocess.run(command).returncode == 0
    assert not processes_that_mention(tmp_path)
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def processes_that_mention(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


def test_a_run_is_submitted_and_watched_and_leaves_personal_states_on_the_clients_disks(make_task, live, tmp_path):
    task = pair(make_task, scenario={"num_timesteps": 1})
    federation = live(task, secure=True)
    federation.start(*task.flower.clients)
    words = ["flower", "run", str(tmp_path / "app"), "--out", str(tmp_path / "out"), "--json"]
    environment = federation.federation.environment
    done = subprocess.run([sys.executable, "-m", "fedade", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished:completed"
    for name in task.flower.clients:
        newest = max((tmp_path / "state" / name).rglob("turn-*.safetensors"))
        heads = [value for key, value in storage.load_tensors(newest)[0].items() if "head.weight" in key]
        assert len(heads) == 1
        assert np.isfinite(heads[0].numpy()).all()


def test_a_run_that_fails_is_an_error_of_the_command(make_task, live, tmp_path):
    task = pair(make_task, methods=["tent"], flower={"join_seconds": 5.0})
    federation = live(task)
    words = ["flower", "run", str(tmp_path / "app"), "--out", str(tmp_path / "out")]
    environment = federation.federation.environment
    done = subprocess.run([sys.executable, "-m", "fedade", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "finished:failed" in done.stderr
    assert "0 of 2 clients came" in read_status(tmp_path / "out")["error"]
