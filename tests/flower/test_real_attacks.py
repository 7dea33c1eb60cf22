"""An outsider, a node with a key that lies about its name, and an app that nobody signed, with real processes."""

import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.flower import CONNECTION
from fedade.flower.bundle import write_app
from fedade.flower.certificates import LOOPBACK, NodeFiles, make_certificates
from fedade.flower.federation import HOST, FlowerFederation, environment, free_ports, wait_for_port
from fedade.flower.flwr_commands import flwr, submit
from fedade.flower.overview import read_status
from fedade.flower.processes import Process, ProcessGroup
from fedade.flower.server_app import adapt
from fedade.flower.wire import TURN

from .deployments import Live, ended, until
from .hostile import turn_of
from .hostile_answers import ALL, ANSWERS, HONEST, LIARS, TIMESTEPS, own_up
from .traces import assert_same, simulated, told

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
EVIL = "\nPath({marker!r}).write_text('a stranger was here')\n"


def test_an_outsider_gets_nowhere_and_the_fleet_runs_what_was_signed(make_task, tmp_path):
    task, short = (
        make_task(methods=["tent"], scenario={"num_clients": 2}, flower={"join_seconds": seconds, "quorum": 1.0})
        for seconds in (300.0, 25.0)
    )
    certificates, marker = tmp_path / "certificates", tmp_path / "marker"
    make_certificates(certificates, LOOPBACK, [*task.flower.clients, "mallory"], days=1)
    make_certificates(tmp_path / "own", LOOPBACK, ["eve"], days=1)
    write_app(tmp_path / "app", task)
    write_app(tmp_path / "evil", short)
    for side in ("client", "server"):
        with (tmp_path / "evil" / "fedade_app" / f"{side}.py").open("a") as module:
            module.write(EVIL.format(marker=f"{marker}-{side}"))
    port, local_port = free_ports(2)
    fedade = [sys.executable, "-m", "fedade", "flower"]
    subprocess.run([*fedade, "sign", str(tmp_path / "app"), str(certificates)], check=True)
    with ProcessGroup() as processes:
        words = ["superlink", str(certificates), "--home", str(tmp_path / "link"), "--host", HOST]
        words += ["--port", str(port), "--local-port", str(local_port)]
        link = processes.start(Process("superlink", [*fedade, *words], os.environ, tmp_path / "superlink.log"))
        wait_for_port(link, port)
        for name in task.flower.clients:
            words = ["node", str(certificates), name, "--superlink", f"{HOST}:{port}"]
            words += ["--state-dir", str(tmp_path / "state" / name)]
            processes.start(Process(name, [*fedade, *words], os.environ, tmp_path / f"{name}.log"))
        lie = f'client="{task.flower.clients[0]}" state-dir="{tmp_path / "lies"}"'
        processes.start(lying_node("mallory", certificates, certificates, port, lie, tmp_path))

        refuse_outsider(tmp_path, port)

        operator = environment(tmp_path / "link" / "homes" / "superlink")
        submit(str(tmp_path / "evil"), CONNECTION, {"out": str(tmp_path / "evil-out")}, operator)
        until(lambda: ended(tmp_path / "evil-out"), 300, link)
        assert "clients came" in read_status(tmp_path / "evil-out")["error"]
        assert not marker.with_name("marker-client").exists()
        assert "is signed by no key of" in (tmp_path / "client-0000.log").read_text()

        submit(str(tmp_path / "app"), CONNECTION, {"out": str(tmp_path / "out")}, operator)
        until(lambda: ended(tmp_path / "out"), 600, link)
        status = read_status(tmp_path / "out")
        assert status.get("finished"), status
        assert status["impostors"] == {"mallory": 1}
        assert not list((tmp_path / "lies").glob("*/*/turn-*"))
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def lying_node(name: str, own: Path, certificates: Path, port: int, node_config: str, folder: Path) -> Process:
    """A node that says it is somebody else, and asks for no signature."""
    words = ["nodes", "--superlink", f"{HOST}:{port}", "--root-certificates", str(certificates / "ca.crt")]
    words += ["--key", str(NodeFiles.of(own, name).key), "--node-config", node_config]
    return Process(name, [sys.executable, "-m", "fedade", "flower", *words], os.environ, folder / f"{name}.log")


def refuse_outsider(folder, port: int) -> None:
    """Whoever reaches the port and has the public certificate can neither register a key nor submit an app."""
    outside = FlowerFederation(folder / "outsider", folder / "certificates", port)
    outside.write_connection()
    public = NodeFiles.of(folder / "own", "eve").public_key
    for words in (("supernode", "register", str(public), CONNECTION), ("supernode", "list", CONNECTION)):
        with pytest.raises(FedadeError):
            flwr(outside.environment, *words)
    with pytest.raises(FedadeError):
        submit(str(folder / "evil"), CONNECTION, {"out": str(folder / "stolen")}, outside.environment)
    trusting = ssl.create_default_context(cafile=folder / "certificates" / "ca.crt")
    for path in ("control/start-run", "control/register-node", "runtime/acquire-task", "fleet/../control/start-run"):
        url = f"https://{HOST}:{port}/v1/{path}"
        assert httpx.post(url, verify=trusting).status_code == 403
    assert not (folder / "marker-server").exists()
    # A key of one's own is no registered one.
    make_certificates(folder / "own", LOOPBACK, ["eve"], days=1)
    (folder / "own" / "ca.crt").write_bytes((folder / "certificates" / "ca.crt").read_bytes())
    lie = f'client="client-0000" state-dir="{folder / "eves"}"'
    with ProcessGroup() as processes:
        eve = processes.start(lying_node("eve", folder / "own", folder / "certificates", port, lie, folder))
        deadline = time.monotonic() + 180
        while eve.ended() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert eve.ended() not in (None, 0)


def test_thirty_hostile_answers_and_rows_are_each_refused_and_named_and_harm_nobody(make_task, make_grid, tmp_path):
    task = make_task(
        scenario={"num_clients": HONEST + LIARS, "num_timesteps": TIMESTEPS},
        protocol={"rounds": 1, "participation": 1.0},
        flower={"quorum": HONEST / (HONEST + LIARS), "retries": 0, "outlier_factor": None},
    )
    names = task.flower.clients
    configs = [{"client": name, "state-dir": str(tmp_path / "states")} for name in names]
    with ProcessGroup() as processes:
        live = Live(processes, task, tmp_path, secure=True)
        processes.start(live.federation.nodes("honest", configs[:HONEST]))
        liars = live.federation.nodes("liars", configs[HONEST:])
        liars.command = [word if word != "fedade" else "tests.flower.hostile_node" for word in liars.command]
        liars.environment = {**liars.environment, "PYTHONPATH": str(ROOT)}
        processes.start(liars)
        live.submit()
        status = live.wait()
        said = live.server_log()
    assert len(ALL) >= 30
    assert status["refused"] == dict.fromkeys(names[HONEST:], TIMESTEPS)
    for number, (_, reason) in enumerate(ALL):
        kind, name = "answer" if number < len(ANSWERS) else "row", names[HONEST + number % LIARS]
        lines = [line for line in said.splitlines() if f"{kind} of {name} refused: " in line]
        assert any(reason in line for line in lines), (number, reason, lines)

    grid = make_grid(task)

    def tamper(node, reply):
        liar = int(grid.nodes[node]["client"][-1]) - HONEST
        if reply.metadata.message_type == TURN and liar >= 0:
            own_up(reply.content, liar, turn_of(grid.sent[-1]))
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "spared")
    found, expected = told(task, tmp_path / "out"), told(task, tmp_path / "spared")
    for number in range(HONEST):
        assert_same(trace.where(found, client=number), trace.where(expected, client=number))


def test_nodes_that_withhold_their_answers_or_send_gigabytes_harm_nobody(make_task, tmp_path):
    names = ["ada", "announces", "bob", "floods"]
    task = make_task(
        methods=["tent"],
        scenario={"num_timesteps": 5},
        flower={"clients": names, "quorum": 0.5, "timeout_seconds": 120.0},
    )
    configs = {name: {"client": name, "state-dir": str(tmp_path / "states")} for name in names}
    with ProcessGroup() as processes:
        live = Live(processes, task, tmp_path, secure=True)
        processes.start(live.federation.nodes("honest", [configs["ada"], configs["bob"]]))
        wasting = live.federation.nodes("wasting", [configs["announces"], configs["floods"]])
        wasting.command = [word if word != "fedade" else "tests.flower.withholding_node" for word in wasting.command]
        wasting.environment = {**wasting.environment, "PYTHONPATH": str(ROOT)}
        processes.start(wasting)
        live.submit()
        status = live.wait()
        said = live.server_log()
        # A node asks, and listens for nobody: a second one on a host needs no port of its own.
        assert not {port for pid in wasting.family() for port in listening(pid)}
    assert status.get("finished"), status
    assert said.count("a message to announces was lost on its way") == 3  # then it is no longer waited for
    assert status["refused"]["floods"] >= 1
    assert "parts of it were not even fetched" in said
    found, expected = told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator")
    for number in (0, 2):
        assert_same(trace.where(found, client=number), trace.where(expected, client=number))
    assert trace.column(trace.where(found, client=1), "n").tolist() == [0] * 5


def listening(pid: int) -> list[int]:
    """TCP ports that a process listens on."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
