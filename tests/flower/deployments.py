"""Real Flower programs for tests: a simulation engine, and federations whose parts can be killed."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedade.flower import CONNECTION
from fedade.flower.bundle import write_app
from fedade.flower.certificates import LOOPBACK, NodeFiles, make_certificates
from fedade.flower.client_app import ANYTHING
from fedade.flower.federation import HOST, FlowerFederation, free_ports, wait_for_port
from fedade.flower.flwr_commands import flwr, submit
from fedade.flower.overview import read_status
from fedade.flower.processes import Process, ProcessGroup, Supervised, flower_program
from fedade.flower.settings import FlowerTask


def simulate(task: FlowerTask, folder: Path, seconds: float = 150.0) -> dict[str, Any]:
    """Run a task on Flower's own simulation engine; returns its status file."""
    write_app(folder / "app", task)
    (port,) = free_ports(1)
    federation = FlowerFederation(folder, None, port)
    federation.write_connection()
    words = [flower_program("flower-superlink"), "--simulation", "--insecure", "--host", HOST, "--port", str(port)]
    # Ray leaves files behind, and refuses folders whose names are as long as those of tests.
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as short, ProcessGroup() as processes:
        environment = {**federation.environment, "TMPDIR": short}
        link = processes.start(Process("simulation", words, environment, folder / "simulation.log"))
        wait_for_port(link, port)
        clients = task.experiment.scenario.num_clients
        flwr(
            environment,
            *("run", str(folder / "app"), CONNECTION, "--format", "json"),
            *("--run-config", f'out="{folder / "out"}" state-dir="{folder / "state"}"'),
            *("--federation-config", f"num-supernodes={clients} client-resources-num-cpus=1"),
        )
        until(lambda: ended(folder / "out"), seconds, link)
    return read_status(folder / "out")


def ended(out: Path) -> bool:
    """Whether a run has ended, well or badly."""
    return "error" in read_status(out) or (out / "summary.json").exists()


def until(condition: Callable[[], bool], seconds: float, process: Process) -> None:
    """Wait for something; the process's last words if it does not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline or process.ended() is not None:
            raise AssertionError(f"waited in vain; {process.name} says: {process.last_words(20)}")
        time.sleep(0.2)


class Live:
    """A federation on loopback whose parts a test starts and kills one by one."""

    def __init__(
        self,
        processes: ProcessGroup,
        task: FlowerTask,
        folder: Path,
        secure: bool = False,
        register: tuple[str, ...] | None = None,
    ) -> None:
        self.processes, self.task, self.folder, self.out = processes, task, folder, folder / "out"
        names = task.flower.clients
        certificates = folder / "certificates" if secure else None
        if certificates is not None:
            make_certificates(certificates, LOOPBACK, names, days=2)
        (port,) = free_ports(1)
        self.federation = FlowerFederation(folder, certificates, port)
        self.federation.write_connection()
        write_app(folder / "app", task)
        self.start_link()
        for name in set(names) - set(names if register is None else register):
            if certificates is not None:
                NodeFiles.of(certificates, name).public_key.unlink()
        self.federation.register()
        self.nodes: dict[str, Supervised] = {}

    def start_link(self) -> None:
        """Start the SuperLink."""
        self.link = self.processes.start(self.federation.superlink())
        wait_for_port(self.link, self.federation.port)

    def start(self, *names: str, **node_config: str) -> None:
        """Start the nodes of some clients."""
        for name in names:
            said = {"client": name, "state-dir": str(self.folder / "state"), "imports": ANYTHING, **node_config}
            node = self.processes.start(self.federation.nodes(name, [said]))
            self.nodes[name] = Supervised(node)

    def kill(self, process: Process) -> None:
        """As a power cut does: the program and all that it started, at once."""
        process.end(deadline=time.monotonic())

    def submit(self, **run_config: str) -> None:
        """Start the run."""
        said = {"out": str(self.out), **run_config}
        self.run = submit(str(self.folder / "app"), CONNECTION, said, self.federation.environment)

    def server_log(self) -> str:
        """What the server said in the run that was submitted last."""
        words = [flower_program("flwr"), "log", str(self.run), CONNECTION, "--show"]
        environment = self.federation.environment
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    def wait(self, seconds: float = 300.0) -> dict[str, Any]:
        """Until the run has ended; its status."""
        self._until(lambda: ended(self.out), seconds)
        return read_status(self.out)

    def wait_for_timestep(self, timestep: int, seconds: float = 300.0) -> None:
        """Until the server has a checkpoint of a timestep."""
        self._until(lambda: read_status(self.out).get("timestep", 0) >= timestep, seconds)

    def wait_for_turn(self, name: str, turn: int, seconds: float = 300.0) -> None:
        """Until a client has finished a turn."""
        self._until(lambda: bool(list((self.folder / "state" / name).glob(f"*/turn-{turn:08d}.*"))), seconds)

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        def revived() -> bool:
            for node in self.nodes.values():
                node.revive()
            return condition()

        until(revived, seconds, self.link)
