"""`make soak`: a run of the simulator and a fleet of thousands of timesteps, which must not grow.

    python -m tests.soak_length --timesteps 3000

Memory, open files and what is kept on disk beside the rows of the trace are read all along. From the middle of a run
to its end none of them may rise: what grows by little in an hour ends a fleet that runs for years. The fleet is a
server and a client in one process, with real messages and real files.
"""

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedade.core.events import CellInfo, Listener, RowsOnDemand
from fedade.experiments.identifying import identified_experiment
from fedade.experiments.settings import experiment_from, merged
from fedade.flower import exchange
from fedade.flower.bundle import DEPLOYMENT, init_app
from fedade.flower.client_app import client_app
from fedade.flower.server_app import adapt
from fedade.flower.settings import read_task
from fedade.products import run_folder

from .flower.conftest import SETTINGS
from .flower.in_process import InProcessGrid

SCENARIO = {"num_clients": 4, "samples": 10, "train_size": 350, "reference_size": 50}
READINGS = 40
BYTES_A_ROW = 2_000
"""Memory that a row of the trace may take, of which a run holds all until it ends."""
ROOM = 12 * 2**20
"""That memory may vary by: caches, and what the allocator holds back."""


class Reading(NamedTuple):
    """What a process uses at a moment."""

    timestep: int
    memory: int
    open_files: int
    state: int
    """Bytes on disk beside rows of the trace, which are what a run is for."""
    rows: int


def read(timestep: int, places: Sequence[Path], rows: int) -> Reading:
    """Look at this process, and at what lies in some folders."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    kept = [path for place in places for path in place.rglob("*") if path.is_file()]
    state = sum(path.stat().st_size for path in kept if not path.name.startswith(("rows-", "trace")))
    return Reading(timestep, pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), state, rows)


def grown(readings: Sequence[Reading]) -> list[str]:
    """What rose from the middle of a run to its end."""
    middle, end = readings[len(readings) // 2], readings[-1]
    allowed = ROOM + BYTES_A_ROW * (end.rows - middle.rows)
    found = []
    if end.memory > middle.memory + allowed:
        found.append(f"memory rose by {(end.memory - middle.memory) / 2**20:.1f} MB, {allowed / 2**20:.1f} are allowed")
    if end.open_files > middle.open_files:
        found.append(f"open files rose from {middle.open_files} to {end.open_files}")
    if end.state > middle.state + 4096:  # numbers that have more digits
        found.append(f"state rose from {middle.state} to {end.state} bytes")
    return found


class _Watching(Listener):
    def __init__(self, folder: Path, every: int, clients: int) -> None:
        self.readings: list[Reading] = []
        self._folder, self._every, self._clients = folder, every, clients

    def on_rows(self, cell: CellInfo, timestep: int, rows: RowsOnDemand) -> None:
        """Now and then."""
        if timestep % self._every == 0:
            self.readings.append(read(timestep, [self._folder], timestep * self._clients))


def simulator(folder: Path, timesteps: int) -> list[Reading]:
    """A long run of the simulator."""
    said = {"scenario": {**SCENARIO, "num_timesteps": timesteps}, "protocol": {"rounds": 1}, "methods": ["fed-ade"]}
    watching = _Watching(folder, max(1, timesteps // READINGS), SCENARIO["num_clients"])
    run_folder.run(identified_experiment(experiment_from({**said, "seeds": [7]})), folder, watching)
    return watching.readings


def batches(client: str, taken: int) -> Iterator[np.ndarray]:
    """A stream without an end, of noise."""
    yield np.random.default_rng(taken).integers(0, 255, (10, 1, 8, 8), dtype=np.uint8)


class _ForgetfulGrid(InProcessGrid):
    """Keeps no messages."""

    def push_messages(self, messages: Any) -> list[str]:
        identities = super().push_messages(messages)
        self.received.clear()
        self.sent[:] = [None] * len(self.sent)  # type: ignore[list-item] - their number names the next
        return identities


def fleet(folder: Path, timesteps: int) -> list[Reading]:
    """A long run of a server and a client."""
    names = ["ada"]
    flower = {
        "stream": {"kind": "import", "path": "tests.soak_length:batches"},
        "clients": names,
        "share": ["learning_rate", "s"],
    }
    above = {"scenario": {"num_clients": 1, "num_timesteps": timesteps}, "flower": flower}
    init_app(folder / "app", merged(merged(SETTINGS, {"protocol": {"rounds": 1}}), above), lambda *_: None)
    task, stored = read_task(folder / "app"), folder / "app" / DEPLOYMENT
    nodes = {
        number: {"client": name, "deployment": str(stored), "imports": "*", "state-dir": str(folder / "state")}
        for number, name in enumerate(names, 11)
    }
    grid = _ForgetfulGrid(client_app(folder / "app"), nodes, {})
    readings: list[Reading] = []
    turns, every = [0], max(1, timesteps // READINGS)

    def tamper(_node: int, reply: Any) -> Any:
        turns[0] += 1
        if turns[0] % every == 0:
            readings.append(read(turns[0], [folder / "state", folder / "out"], turns[0]))
        return reply

    grid.tamper = tamper
    exchange.POLL_SECONDS = 0.0
    adapt(task, grid, folder / "out", stored)
    return readings


def main() -> None:
    """Exit code 1 if anything grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timesteps", type=int, default=3000)
    asked, wrong = parser.parse_args(), False
    for kind, long_run in (("simulator", simulator), ("fleet", fleet)):
        with tempfile.TemporaryDirectory(prefix="fedade-long-") as place:
            readings = long_run(Path(place), asked.timesteps)
        found = grown(readings)
        wrong |= bool(found)
        for reading in (readings[0], readings[len(readings) // 2], readings[-1]):
            print(kind, f"{reading.memory / 2**20:.1f} MB", *reading, flush=True)  # noqa: T201
        print(kind, *(found or ["did not grow"]), sep="; ", flush=True)  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
