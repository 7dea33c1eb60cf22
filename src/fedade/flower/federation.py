"""The programs of a federation on this machine: a SuperLink, nodes, and the client that submits runs."""

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

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.flower.certificates import CA, SERVER, SERVER_KEY, NodeFiles
from fedade.flower.names import CONNECTION
from fedade.flower.processes import Process, flower_program
from fedade.flower.registration import NODES_VARIABLE, register_keys

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
    def database(self) -> Path:
        """What the SuperLink remembers: keys, nodes, runs."""
        return self.folder / "superlink.db"

    @property
    def names_file(self) -> Path:
        """Which node has which name, for the server."""
        return self.folder / "nodes.json"

    def superlink(self, *, forgets: bool = False) -> Process:
        """The server's end of the network; its database lets nodes find it again after a restart.

        One that forgets has none, and needs half the time for a request.
        """
        words = ["--host", HOST, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        words += [] if forgets else ["--database", str(self.database)]
        if self.certificates is None:
            return self._process("superlink", [flower_program("flower-superlink")], [*words, "--insecure"])
        words += _tls(self.certificates, self.certificates / SERVER, self.certificates / SERVER_KEY)
        words += ["--enable-supernode-auth"]
        variables = {NODES_VARIABLE: str(self.names_file)}
        return self._process("superlink", [flower_program("flower-superlink")], words, variables)

    def nodes(self, name: str, node_configs: Sequence[Mapping[str, str]]) -> Process:
        """The clients' end of the network: one program for one or several."""
        words = ["flower", "nodes", "--superlink", self.address]
        words += ["--insecure"] if self.certificates is None else ["--root-certificates", str(self.certificates / CA)]
        for config in node_configs:
            words += ["--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())]
            if self.certificates is not None:
                words += ["--key", str(NodeFiles.of(self.certificates, config["client"]).key)]
        return self._process(name, [sys.executable, "-m", "fedade"], words)

    def write_connection(self) -> None:
        """Tell Flower's command line where the SuperLink is."""
        lines = [f"[superlink.{CONNECTION}]", f'address = "{self.address}"']
        if self.certificates is None:
            lines.append("insecure = true")
        else:
            lines.append(f"root-certificates = {json.dumps(str(self.certificates / CA))}")
        storage.write_bytes(self._home("superlink") / "config.toml", ("\n".join(lines) + "\n").encode())

    def register(self) -> None:
        """Let the SuperLink know the public keys of the certificates' folder, each for its name."""
        if self.certificates is not None:
            register_keys(self.address, self.certificates, self.names_file)

    @property
    def environment(self) -> dict[str, str]:
        """For Flower's command line."""
        return environment(self._home("superlink"))

    def _process(
        self, name: str, program: list[str], words: list[str], variables: Mapping[str, str] | None = None
    ) -> Process:
        log = self.folder / "logs" / f"{name}.log"
        return Process(name, [*program, *words], environment(self._home(name)) | dict(variables or {}), log)

    def _home(self, name: str) -> Path:
        """A home for each: clients that install the same app at the same time would meet in a common one."""
        return self.folder / "homes" / name


def _tls(certificates: Path, certificate: Path, key: Path) -> list[str]:
    paths = {"--ssl-ca-certfile": certificates / CA, "--ssl-certfile": certificate, "--ssl-keyfile": key}
    return [word for option, path in paths.items() for word in (option, str(path))]


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    chosen: list[int] = []
    candidates = secrets.SystemRandom().sample(_PORTS, len(_PORTS))
    for port in candidates:
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
