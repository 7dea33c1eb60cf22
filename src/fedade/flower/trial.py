"""A whole federation on this machine, for a trial: started, run, shown, and ended without a trace."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.core.paths import CONFIG, cache_dir
from fedade.experiments.settings import merged
from fedade.flower.app_template import write_app
from fedade.flower.certificates import LOOPBACK, make_certificates
from fedade.flower.federation import FlowerFederation, free_ports, wait_for_port
from fedade.flower.flwr_commands import refuse_failed, run_status, submit
from fedade.flower.identity import ANYTHING
from fedade.flower.names import CONNECTION, DAYS, numbered_name
from fedade.flower.processes import Process, ProcessGroup, Supervised, interruptible
from fedade.flower.run_folder import STATUS, read_status
from fedade.flower.settings import FlowerTask, task_from
from fedade.runner.store import claim
from fedade.scenarios.building import build_deployment

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
        """Run the task to its end, or continue it; returns its summary."""
        identity = self.task.experiment.identity()
        claim(self.out, CONFIG, identity, write=False)
        if not (self.out / "summary.json").exists():
            scenario = self.task.experiment.scenario
            build_deployment(scenario, "cpu", cache_dir(), lambda done, of: self.report("pre-training", done, of))
            claim(self.out, CONFIG, identity)  # not before the model is there: a start that fails must leave no claim
            (self.out / STATUS).unlink(missing_ok=True)
            with interruptible(), ProcessGroup() as processes:
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
        """Until the run has ended."""
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
