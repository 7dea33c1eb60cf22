"""What a node's socket costs beside `Adapter.predict` itself: `python speed/serving.py --out FILE`.

A process serves an adapter at a socket as a node does; this one has a copy of the adapter. It asks its own copy and the
socket in turn, so that other work on the machine meets both alike. Told are each one's fastest and median by the clock,
and the work of both processes, which other work hardly changes: on cores that are busy, the clock also counts how long
a second process waits for its turn. An adapter that predicts nothing shows what the socket alone costs.
"""

import argparse
import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedade
from fedade.core.paths import cache_dir
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from
from fedade.flower.endpoint import NodeClient, array_of, bytes_of, served_at
from fedade.flower.serving import Served
from fedade.scenarios.building import build_deployment

BLOCK = 10
"""Calls of one contender before it is the next one's turn."""


class NoNetwork:
    """Answers with what it was given to answer with."""

    def __init__(self, answer: torch.Tensor) -> None:
        self._answer = answer

    def predict(self, _inputs: Any) -> torch.Tensor:
        return self._answer


def adapted(preset: str, samples: int) -> tuple[fedade.Adapter, np.ndarray]:
    """An adapter of a preset's model that has learned from a few batches, and another batch as clients send it."""
    scenario = experiment_from(settings_from(preset)).scenario
    deployment = build_deployment(scenario, "cpu", cache_dir(), lambda _done, _of: None)
    adapter = fedade.Adapter(deployment, "fed-ade")
    held_out = deployment.reference.inputs
    for number in range(3):
        adapter(held_out[number * samples : (number + 1) * samples])
    return adapter, held_out[-samples:].numpy()


def served_by_a_child(path: Path, predictor: Any) -> int:
    """The process that answers at a socket until it is killed."""
    ready, told = os.pipe()
    if pid := os.fork():
        os.read(ready, 1)
        return pid
    served = Served("ada")
    served._adapter = predictor
    with served_at(path, served):
        os.write(told, b"1")
        while True:
            time.sleep(3600)


def cpu_milliseconds(pids: list[int]) -> float:
    """What processes have worked so far, in all their threads."""
    threads = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e6


def in_turns(
    contenders: dict[str, Callable[[], object]], turns: int, pause: float, pids: list[int]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of every call, by the clock, and of these processes' work in blocks of calls."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    works: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns // BLOCK):
        for name, call in contenders.items():
            before = cpu_milliseconds(pids)
            for _ in range(BLOCK):
                time.sleep(pause)
                begun = time.perf_counter()
                call()
                times[name].append(1000 * (time.perf_counter() - begun))
            works[name].append((cpu_milliseconds(pids) - before) / BLOCK)
    return times, works


def measure(preset: str, samples: int, turns: int, pause: float) -> list[dict[str, object]]:
    """Lines of the table for one preset."""
    torch.set_num_threads(1)  # as a node has for small networks; and a fork cannot inherit threads
    adapter, inputs = adapted(preset, samples)
    answer = adapter.predict(inputs)
    sent, got = bytes_of(inputs), bytes_of(answer.numpy())
    children: list[int] = []
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        try:
            for name, predictor in (("node", adapter), ("empty", NoNetwork(answer))):
                children.append(served_by_a_child(Path(folder) / name, predictor))
            with NodeClient(Path(folder) / "node") as node, NodeClient(Path(folder) / "empty") as empty:
                np.testing.assert_array_equal(node.predict(inputs), answer)
                contenders: dict[str, Callable[[], object]] = {
                    "Adapter.predict": lambda: adapter.predict(inputs),
                    "at the socket": lambda: node.predict(inputs),
                    "at a socket that predicts nothing": lambda: empty.predict(inputs),
                    "arrays to bytes and back, both ways": lambda: (
                        bytes_of(inputs),
                        array_of(sent),
                        bytes_of(answer.numpy()),
                        array_of(got),
                    ),
                }
                times, works = in_turns(contenders, turns, pause, [os.getpid(), *children])
        finally:
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)
    own, worked = min(times["Adapter.predict"]), statistics.median(works["Adapter.predict"])
    return [
        {
            "measured": datetime.now(UTC).date().isoformat(),
            "preset": preset,
            "samples": samples,
            "pause_milliseconds": 1000 * pause,
            "what": name,
            "requests": turns,
            "fastest_milliseconds": round(min(found), 3),
            "median_milliseconds": round(statistics.median(found), 3),
            "cpu_milliseconds": round(statistics.median(works[name]), 3),
            "fastest_against_the_adapter": round(min(found) / own, 2),
            "cpu_against_the_adapter": round(statistics.median(works[name]) / worked, 2),
        }
        for name, found in times.items()
    ]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["digits-label"])
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--pause", type=float, default=0.001, help="seconds before every call")
    parser.add_argument("--out", type=Path, help="a CSV file that gets the lines")
    asked = parser.parse_args()
    lines = [line for preset in asked.presets for line in measure(preset, asked.samples, asked.requests, asked.pause)]
    with asked.out.open("w") if asked.out else sys.stdout as file:
        writer = csv.DictWriter(file, fieldnames=lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
