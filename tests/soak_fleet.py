"""`make soak`: kill nodes, SuperLink and server of a fleet at random moments, and see that nothing is lost or left.

    python -m tests.soak_fleet --kills 20

A fleet of two clients with TLS runs to its end. On its way one of its programs at a time is killed, at moments drawn
from a seed, and started again as a service manager and an operator would: nodes and SuperLink at once, the run by the
same command. It must have the simulator's table, no file of a dead writer and no process.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedade.core.errors import FedadeError
from fedade.experiments.settings import merged
from fedade.flower import numbered_name
from fedade.flower.overview import read_status
from fedade.flower.processes import Process, ProcessGroup
from fedade.flower.settings import FlowerTask, task_from

from .flower.conftest import SETTINGS
from .flower.deployments import Live
from .flower.traces import assert_same, simulated, told
from .runner.crash_points import LEFT_BEHIND

ABOVE: dict[str, Any] = {
    "scenario": {"num_clients": 2, "num_timesteps": 6},
    "protocol": {"participation": 1.0},
    "flower": {
        "clients": [numbered_name(number) for number in range(2)],
        "share": "everything",
        "quorum": 1.0,
        "retries": 20,
        "timeout_seconds": 120.0,
    },
}
KILLS_OF_A_RUN = 10
BETWEEN_KILLS = (1.0, 25.0)
"""Seconds: from a program that has hardly begun to one that works."""
LONGEST_SECONDS = 900.0
VICTIMS = ("node", "node", "link", "server")


def server_of(link: Process) -> list[int]:
    """The process of the server app, which the SuperLink has started."""
    found = []
    for pid in link.family():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if b"flwr-serverapp" in words or b"flower-serverapp" in words:
            found.append(pid)
    return found


class Fleet:
    """A fleet in a folder, of which programs are killed."""

    def __init__(self, processes: ProcessGroup, task: FlowerTask, folder: Path, chance: random.Random) -> None:
        self.live, self._chance = Live(processes, task, folder, secure=True), chance
        self.live.start(*task.flower.clients)
        self.live.submit()

    @property
    def done(self) -> bool:
        """Whether the run has ended with all that it leaves."""
        return (self.live.out / "report.html").exists()

    def kill(self) -> str:
        """Kill one program and start again what nobody else does; which it was."""
        victim = self._chance.choice(VICTIMS)
        if victim == "node":
            name = self._chance.choice(sorted(self.live.nodes))
            self.live.kill(self.live.nodes[name].process)
        elif victim == "link":
            self.live.kill(self.live.link)
            self.live.start_link()
            self.live.submit()
        else:
            servers = server_of(self.live.link)
            for pid in servers:
                os.kill(pid, signal.SIGKILL)
            if not servers:
                return "nobody"
            self.live.submit()
        return victim

    def watch(self, seconds: float) -> None:
        """Let it run, with nodes that are started again, until it is done or the time is over."""
        over = time.monotonic() + seconds
        while not self.done and time.monotonic() < over:
            for node in self.live.nodes.values():
                node.revive()
            if "error" in (status := read_status(self.live.out)):
                raise FedadeError(str(status["error"]))
            time.sleep(0.2)


def killed_run(task: FlowerTask, folder: Path, chance: random.Random, kills: int) -> list[str]:
    """Which programs of a run were killed on its way to its end."""
    killed: list[str] = []
    with ProcessGroup() as processes:
        fleet = Fleet(processes, task, folder, chance)
        while not fleet.done and len(killed) < kills:
            fleet.watch(chance.uniform(*BETWEEN_KILLS))
            if not fleet.done and (victim := fleet.kill()) != "nobody":
                killed.append(victim)
        fleet.watch(LONGEST_SECONDS)
        if not fleet.done:
            raise FedadeError(f"it has not ended after {LONGEST_SECONDS:.0f} s; the link says {fleet.live.link.log}")
        families = [process.family for process in processes.running]
    if orphans := [pid for family in families for pid in family()]:
        raise FedadeError(f"{len(orphans)} processes outlived their fleet")
    return killed


def main() -> None:
    """Kill until enough was killed, or the time is over; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    asked = parser.parse_args()
    task = task_from(merged(SETTINGS, ABOVE))
    chance, kills, wrong, runs = random.Random(asked.seed), 0, 0, 0
    over = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="fedade-fleet-") as name:
        whole = simulated(task, Path(name) / "whole")  # trains the model, too
        while kills < asked.kills and time.monotonic() < over:
            runs, folder = runs + 1, Path(name) / f"run-{runs}"
            killed, found = list[str](), list[str]()
            try:
                killed = killed_run(task, folder, chance, min(KILLS_OF_A_RUN, asked.kills - kills))
                assert_same(told(task, folder / "out"), whole)
                left = [path for part in ("out", "state") for path in (folder / part).rglob("*")]
                found = [f"{path.name} is left" for path in left if LEFT_BEHIND.fullmatch(path.name)]
            except (FedadeError, AssertionError, OSError) as error:
                found = [f"{type(error).__name__}: {str(error)[:500]}"]
            kills, wrong = kills + len(killed), wrong + bool(found)
            print(f"{kills} kills, {runs} runs, {wrong} wrong", ", ".join(killed), *found, sep="; ", flush=True)  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
