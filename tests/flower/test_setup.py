"""What stands before a run: settings, the app, certificates, processes, and the command line."""

import ast
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import fedade
from fedade.core.errors import FedadeError
from fedade.flower import processes
from fedade.flower.bundle import init_app, write_app
from fedade.flower.certificates import make_certificates
from fedade.flower.federation import trial_task
from fedade.flower.processes import Process, ProcessGroup
from fedade.flower.settings import read_task, task_from


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"methods": ["fed-ade", "tent"]}, "one method and one seed, not 2 and 1"),
        ({"seeds": [0, 1]}, "not 1 and 2"),
        ({"flower": {"quorum": 0}}, "flower.quorum"),
        ({"flower": {"quorums": 1}}, "flower.quorums"),
        ({"flower": {"clients": ["a", "a"]}}, "every name may appear once"),
        ({"flower": {"stream": {"kind": "magic"}}}, "flower.stream"),
        ({"methods": ["shuffled-lr"]}, "replays the rates of a finished run"),
        ({"flower": {"stream": {"kind": "folder", "path": "/data"}}}, "need a stored deployment"),
        (
            {"methods": ["oracle-prior"], "deployment": "0", "flower": {"stream": {"kind": "folder", "path": "/d"}}},
            "needs labels",
        ),
        (
            {"flower": {"aggregation": "median", "privacy": {"noise_multiplier": 1, "clipping_norm": 1}}},
            "no privacy account",
        ),
        ({"flower": {"privacy": {"noise_multiplier": 1, "clipping_norm": 1}}}, "privacy needs the names"),
    ],
)
def test_settings_that_cannot_work_are_one_line(settings, reason):
    with pytest.raises(FedadeError, match=reason) as found:
        task_from(settings)
    assert "\n" not in str(found.value)


def test_a_trial_names_its_clients_and_shares_everything():
    task = trial_task({"scenario": {"num_clients": 50}}, 3)
    assert task.flower.clients == ("client-0000", "client-0001", "client-0002")
    assert task.experiment.scenario.num_clients == 3
    assert task.method_name == "fed-ade"
    assert task.flower.shares("anything")


def test_an_app_is_a_shim_that_depends_on_flower_alone(tmp_path):
    made = init_app(tmp_path / "app", {"methods": ["tent"]}, lambda *_: None)
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert [one.split(">")[0] for one in project["project"]["dependencies"]] == ["flwr"]
    assert read_task(tmp_path / "app").method_name == "tent"
    assert all(path.exists() for path in made)
    components = project["tool"]["flwr"]["app"]["components"]
    for reference in components.values():
        module = tmp_path / "app" / Path(*reference.split(":")[0].split(".")).with_suffix(".py")
        assert "app = " in module.read_text()


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FedadeError, match="holds no app"):
        init_app(tmp_path, {}, lambda *_: None)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_app_can_be_written_again(tmp_path):
    for method in ("tent", "source"):
        write_app(tmp_path / "app", task_from({"methods": [method]}))
    assert read_task(tmp_path / "app").method_name == "source"


def test_certificates_verify_and_keys_are_the_owners_alone(tmp_path):
    made = make_certificates(tmp_path, ["fleet.example.org", "10.0.0.7"], ["ada", "bob"], days=3)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    assert context.get_ca_certs()[0]["subject"][0][0][1] == "fedade authority"
    server = ssl._ssl._test_decode_cert(str(tmp_path / "server.pem"))
    assert ("DNS", "fleet.example.org") in server["subjectAltName"]
    assert ("IP Address", "10.0.0.7") in server["subjectAltName"]
    for secret in (
        "ca.key",
        "app.key",
        "server.key",
        "nodes/ada/node.key",
        "nodes/bob/node.key",
    ):
        assert stat.S_IMODE((tmp_path / secret).stat().st_mode) == 0o600
    assert (tmp_path / "nodes" / "ada" / "node.key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert len(made) == 2 + 2 + 2 + 2 * 2


def test_more_nodes_can_be_added_and_nothing_is_overwritten(tmp_path):
    make_certificates(tmp_path, [], ["ada"], days=3)
    before = (tmp_path / "ca.crt").read_bytes()
    added = make_certificates(tmp_path, [], ["ada", "bob"], days=3)
    assert {path.parent.name for path in added} == {"bob"}
    assert len(added) == 2
    assert (tmp_path / "ca.crt").read_bytes() == before


def running(pid: int) -> bool:
    """Whether it is there, and not only waits for its parent to notice its end."""
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_processes_end_with_their_children_even_those_in_other_groups(tmp_path):
    child = f"subprocess.Popen([sys.executable, '-c', {'import time; time.sleep(600)'!r}], start_new_session=True)"
    script = f"import subprocess, sys, time; {child}; time.sleep(600)"
    with ProcessGroup() as processes:
        process = processes.start(Process("parent", [sys.executable, "-c", script], os.environ, tmp_path / "log"))
        deadline = time.monotonic() + 30
        while len(process.family()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        family = process.family()
        assert len(family) == 2
    assert not process.family()
    assert not any(running(pid) for pid in family)


def test_a_process_that_is_just_ending_is_waited_for(tmp_path, monkeypatch):
    """A process that ends has no environment to read for a moment before its exit code can be had."""
    process = Process("ending", [sys.executable, "-c", "import time; time.sleep(60)"], os.environ, tmp_path / "log")
    process.start()
    monkeypatch.setattr(processes, "_marked", lambda mark: [])
    process.end(time.monotonic())
    assert process.ended() is not None


GROUP = """
import os, sys, time
from pathlib import Path
from fedade.flower.processes import Process, ProcessGroup, ended_by_signals
with ended_by_signals(as_interrupt=True), ProcessGroup() as processes:
    child = Process("child", [sys.executable, "-c", "import time; time.sleep(600)"], os.environ, Path(sys.argv[1]))
    print(processes.start(child).pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_or_a_lost_terminal_ends_all_that_was_started(tmp_path, number):
    words = [sys.executable, "-c", GROUP, str(tmp_path / "log")]
    group = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    child = int(group.stdout.readline())
    group.send_signal(number)
    group.communicate()
    deadline = time.monotonic() + (20 if number == signal.SIGKILL else 0)
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(child)


def test_only_this_package_and_what_is_timed_against_it_import_flower():
    root = Path(fedade.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "flwr" for name in names):
                found.add(path.relative_to(root).as_posix())
    assert {place for place in found if not place.startswith("flower/")} == {"speed/flower_loop.py"}


def test_the_command_line_does_not_import_flower():
    script = "import sys, fedade.cli.flower; assert not any(name.split('.')[0] == 'flwr' for name in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_certs_and_init_say_what_they_made(tmp_path):
    for words in (["certs", str(tmp_path / "certs"), "--node", "ada"], ["init", str(tmp_path / "app"), "digits-label"]):
        script = "from fedade.cli.flower import app; app()"
        done = subprocess.run([sys.executable, "-c", script, *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert all(Path(path).exists() for path in json.loads(done.stdout))


def test_a_method_without_rounds_is_asked_once_a_timestep():
    assert task_from({"methods": ["fed-ade-plus"]}).rounds == 1
    settings = {"methods": ["fed-ade-plus"], "method": {"gradient_steps": True}}
    assert task_from(settings).rounds == task_from({"methods": ["fed-ade"]}).rounds > 1
