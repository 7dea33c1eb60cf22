"""What clients gain from conditions that a server remembers: `fed-ade-plus` alone and federated, by batch size.

python research/shared_conditions.py --data-dir DIR --out FILE.csv --seed 100 --samples 1,10,50 --kind covariate,both

A public CIFAR-10 ResNet-20 under a few corruptions; or, without --data-dir, the default network on the digits.
"""

import argparse
import csv
import time
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from research.accuracy_streams import as_inputs, deployed, images

from fedade.client_map import Vectorised, loop
from fedade.core.deployment import Deployment
from fedade.core.paths import cache_dir
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.methods import METHODS
from fedade.scenarios.building import build_scenario
from fedade.scenarios.own_streams import drifting_streams
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.stream_laws import STREAMS

CORRUPTIONS = ("gaussian_noise", "contrast", "defocus_blur", "fog", "jpeg_compression")
POOL = 3000


@cache
def public_network(data_dir: Path) -> tuple[Deployment, Any, Any]:
    """The deployed network, and images and labels to stream."""
    found = images(data_dir)
    deployment, _ = deployed(data_dir / "models", found.held_out)
    pixels, labels = found.streamed
    return deployment, as_inputs(pixels[:POOL]), torch.from_numpy(labels[:POOL]).long()


def scenario_of(data_dir: Path | None, law: str, seed: int, number: int, settings: dict[str, Any]) -> Scenario:
    """The public network under streams of a law and so many corruptions, or the default one of the digits."""
    if data_dir is None:
        return build_scenario(ScenarioSettings(stream=law, **settings), seed, "cpu", cache_dir(), lambda *_: None)
    deployment, *pool = public_network(data_dir)
    corruptions = CORRUPTIONS[:number] if settings["kind"] in ("covariate", "both") else ()
    base = drifting_streams(*pool, seed=seed, corruptions=corruptions, **settings)
    given = {part.name: getattr(base, part.name) for part in fields(base) if part.init}
    given["settings"] = given["settings"].model_copy(update={"stream": law})
    return Scenario(deployment, STREAMS[law](**given))


def rows_of(method: str, scenario: Scenario, seed: int) -> dict[str, NDArray[Any]]:
    """All rows of a run with one exchange a timestep."""
    small = len(scenario.deployment.reference.inputs) <= 100
    client_map = Vectorised() if small else loop
    clock = Clock(METHODS[method](), scenario, Rounds(1, 1.0), Seeds(seed), Maps(client_map, client_map))
    steps = list(clock.run(clock.beginning()))
    columns = ("client", "timestep", "accuracy_post", "bytes_sent")
    return {column: np.concatenate([rows[column] for rows in steps]) for column in columns}


def late_and_from_the_start(
    late: dict[str, NDArray[Any]], whole: dict[str, NDArray[Any]], first: NDArray[np.int64]
) -> tuple[float, float]:
    """Accuracy of late clients from their 5th timestep on, and on the same batches, had they always been there."""
    known = dict(zip(zip(whole["client"], whole["timestep"], strict=True), whole["accuracy_post"], strict=True))
    joined = first[late["client"]]
    settled = (joined > 1) & (late["timestep"] > joined + 3)
    same = zip(late["client"][settled], late["timestep"][settled], strict=True)
    return float(late["accuracy_post"][settled].mean()), float(np.mean([known[place] for place in same]))


def main() -> None:
    """Run every combination, and add a line for each to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    for name, default in {
        "seed": "100", "samples": "1,10,50", "kind": "covariate,both", "schedule": "lin", "stream": "drift",
        "method": "source,fed-ade-plus,fed-ade-plus-federated",
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", default=default)
    for name, number in {"corruptions": len(CORRUPTIONS), "clients": 40, "timesteps": 24}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = (part.split(",") for part in (asked.seed, asked.kind, asked.samples))
    for seed, kind, samples in product(*parts):
        settings = {
            "kind": kind, "schedule": asked.schedule, "samples": int(samples), "num_clients": asked.clients,
            "num_timesteps": asked.timesteps,
        }  # fmt: skip
        scenario = scenario_of(asked.data_dir, asked.stream, int(seed), asked.corruptions, settings)
        for method in asked.method.split(","):
            begun = time.monotonic()
            rows = rows_of(method, scenario, int(seed))
            line = {
                "suite": "shared-conditions",
                "dataset": "digits" if asked.data_dir is None else "cifar10-c",
                "model": "small-cnn" if asked.data_dir is None else "public ResNet-20",
                "stream": asked.stream,
                "kind": kind,
                "schedule": asked.schedule,
                "samples": samples,
                "clients": asked.clients,
                "timesteps": asked.timesteps,
                "source": "uniform",
                "row": method,
                "method": method,
                "seed": seed,
                "accuracy_post": f"{rows['accuracy_post'].mean():.4f}",
                "bytes_sent": int(rows["bytes_sent"].sum()),
                "case": "",
            }
            lines = [line]
            if asked.stream == "late":
                usual = scenario_of(asked.data_dir, "drift", int(seed), asked.corruptions, settings)
                whole, first = rows_of(method, usual, int(seed)), scenario.streams.first_timesteps
                late, always = late_and_from_the_start(rows, whole, first)
                lines = [
                    line | {"case": case, "accuracy_post": f"{value:.4f}"}
                    for case, value in (("joined late", late), ("there from the start", always))
                ]
            print(*lines, f"{time.monotonic() - begun:.0f} s", flush=True)
            add(asked.out, lines)


def add(path: Path, lines: list[dict[str, Any]]) -> None:
    """Append lines, with a header to a new file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
