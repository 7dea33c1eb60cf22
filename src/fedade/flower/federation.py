"""The programs of a federation on this machine: a SuperLink, nodes, who submits runs; and all of it in a trial."""

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.core.paths import CONFIG, cache_dir
from fedade.experiments.settings import merged
from fedade.flower import CONNECTION, DAYS, numbered_name
from fedade.flower.admission import NODES_VARIABLE, register_keys
from fedade.flower.bundle import write_app
from fedade.flower.certificates import CA, LOOPBACK, SERVER, SERVER_KEY, NodeFiles, make_certificates
from fedade.flower.client_app import ANYTHING
from fedade.flower.flwr_commands import refuse_failed, run_status, submit
from fedade.flower.overview import STATUS, read_status
from fedade.flower.processes import Process, ProcessGroup, Supervised, ended_by_signals, flower_program
from fedade.flower.settings import FlowerTask, task_from
from fedade.runner.store import claim
from fedade.scenarios.building import build_deployment

HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections: a node that calls a SuperLink which is down could be given
the SuperLink's own port, and would answer itself."""
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def environment(home: Path) -> dict[str, str]:
    """Variables that keep Flower quiet, offline and to itself; what the user has set stays."""
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **_QUIET,
        "FLWR_HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


@dataclass(frozen=True)
class FlowerFederation:
    """Where the programs of one federation keep their files and which ports they use."""

    folder: Path
    certificates: Path | None
    """None: without TLS and node authentication."""
    port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def names_file(self) -> Path:
        """Which node has which name, for the server."""
        return self.folder / "nodes.json"

    def superlink(self, *, forgets: bool = False) -> Process:
        """The server's end of the network; its database lets nodes find it again after a restart. One that forgets has
        none, and needs half the time for a request."""
        words = ["--host", HOST, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        words += [] if forgets else ["--database", str(self.folder / "superlink.db")]
        if self.certificates is None:
            return self._process("superlink", flower_program("flower-superlink"), *words, "--insecure")
        files = {"--ssl-ca-certfile": CA, "--ssl-certfile": SERVER, "--ssl-keyfile": SERVER_KEY}
        words += [word for option, name in files.items() for word in (option, str(self.certificates / name))]
        words += ["--enable-supernode-auth"]
        variables = {NODES_VARIABLE: str(self.names_file)}
        return self._process("superlink", flower_program("flower-superlink"), *words, **variables)

    def nodes(self, name: str, node_configs: Sequence[Mapping[str, str]]) -> Process:
        """The clients' end of the network: one program for one or several."""
        words = ["flower", "nodes", "--superlink", self.address]
        words += ["--insecure"] if self.certificates is None else ["--root-certificates", str(self.certificates / CA)]
        for config in node_configs:
            words += ["--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())]
            if self.certificates is not None:
                words += ["--key", str(NodeFiles.of(self.certificates, config["client"]).key)]
        return self._process(name, sys.executable, "-m", "fedade", *words)

    def write_connection(self) -> None:
        """Tell Flower's command line where the SuperLink is."""
        lines = [f"[superlink.{CONNECTION}]", f'address = "{self.address}"']
        root = None if self.certificates is None else json.dumps(str(self.certificates / CA))
        lines.append("insecure = true" if root is None else f"root-certificates = {root}")
        storage.write_bytes(self._home("superlink") / "config.toml", ("\n".join(lines) + "\n").encode())

    def register(self) -> None:
        """Let the SuperLink know the public keys of the certificates' folder, each for its name."""
        if self.certificates is not None:
            register_keys(self.address, self.certificates, self.names_file)

    @property
    def environment(self) -> dict[str, str]:
        return environment(self._home("superlink"))

    def _process(self, name: str, *command: str, **variables: str) -> Process:
        log = self.folder / "logs" / f"{name}.log"
        return Process(name, command, environment(self._home(name)) | variables, log)

    def _home(self, name: str) -> Path:
        """A home for each: clients that install the same app at the same time would meet in a common one."""
        return self.folder / "homes" / name


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    chosen: list[int] = []
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise FedadeError(f"{count} ports are not free on {HOST}; stop other programs")


def wait_for_port(process: Process, port: int, seconds: float = 60.0) -> None:
    """Until a process listens; an error if it ends instead."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.ended() is not None:
            raise FedadeError(f"{process.name} ended at once: {process.last_words()}; log: {process.log}")
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise FedadeError(f"{process.name} does not listen after {seconds:.0f} s; log: {process.log}")


POLL_SECONDS = 0.5
LIST_SECONDS = 30.0
"""Between two questions to Flower itself, each of which starts a program."""


def trial_task(settings: Mapping[str, Any], clients: int) -> FlowerTask:
    """The task of a trial: clients have numbers, and nothing is secret, because the data are a public dataset's."""
    names = [numbered_name(number) for number in range(clients)]
    below = {"flower": {"share": "everything", "timeout_seconds": 180.0}}
    above = {"scenario": {"num_clients": clients}, "flower": {"clients": names}}
    return task_from(merged(merged(below, settings), above))


@dataclass(frozen=True)
class Trial:
    """A task on loopback."""

    task: FlowerTask
    out: Path
    insecure: bool
    report: Report

    def run(self) -> dict[str, Any]:
        identity = self.task.experiment.identity()
        claim(self.out, CONFIG, identity, write=False)
        if not (self.out / "summary.json").exists():
            scenario = self.task.experiment.scenario
            build_deployment(scenario, "cpu", cache_dir(), lambda done, of: self.report("pre-training", done, of))
            claim(self.out, CONFIG, identity)  # not before the model is there: a start that fails must leave no claim
            (self.out / STATUS).unlink(missing_ok=True)
            with ended_by_signals(as_interrupt=True), ProcessGroup() as processes:
                self._run(processes)
        return {**storage.read_json(self.out / "summary.json"), "flower": read_status(self.out)}

    def _run(self, processes: ProcessGroup) -> None:
        names, folder = self.task.flower.clients, self.out / "flower"
        write_app(folder / "app", self.task)
        certificates = None if self.insecure else folder / "certificates"
        if certificates is not None:
            make_certificates(certificates, LOOPBACK, names, DAYS)
        (port,) = free_ports(1)
        federation = FlowerFederation(folder, certificates, port)
        federation.write_connection()
        # A trial that is cut off begins with another SuperLink, and goes on from the server's own checkpoint.
        superlink = processes.start(federation.superlink(forgets=True))
        configs = [{"client": name, "state-dir": str(folder / "state"), "imports": ANYTHING} for name in names]
        # They wait for the SuperLink, and until they are registered.
        nodes = Supervised(processes.start(federation.nodes("nodes", configs)))
        wait_for_port(superlink, port)
        federation.register()
        run = submit(str(folder / "app"), CONNECTION, {"out": str(self.out)}, federation.environment)
        self._watch(federation, run, superlink, nodes)

    def _watch(self, federation: FlowerFederation, run: int, superlink: Process, nodes: Supervised) -> None:
        timesteps, asked = self.task.experiment.scenario.num_timesteps, time.monotonic()
        while True:
            status = read_status(self.out)
            if "error" in status:
                raise FedadeError(str(status["error"]))
            self.report(self.task.method_name, int(status.get("timestep", 0)), timesteps)
            if (self.out / "summary.json").exists() and (self.out / "report.html").exists():
                self.report(self.task.method_name, timesteps, timesteps)
                return
            if superlink.ended() is not None:
                raise FedadeError(
                    f"the SuperLink ended ({superlink.ended()}); start the same command again to continue from the "
                    f"last timestep; log: {superlink.log}"
                )
            nodes.revive()
            if time.monotonic() - asked > LIST_SECONDS:
                asked = time.monotonic()
                refuse_failed(run, *run_status(CONNECTION, run, federation.environment))
            time.sleep(POLL_SECONDS)
