"""Whether bad states are given up, and good ones kept: a public CIFAR-10 ResNet-20 through `fedade.Adapter`.

python research/bad_states.py --data DIR --streams DIR --out docs/results/bad-states.csv

DATA holds `cifar10/plain_text` and `models/cifar10-resnet20.safetensors`; STREAMS is what `accuracy_streams.py` stored.
Bad states: TENT on a burst of one class; and what a client learned from such a burst, or from noise, when it stops
learning and the usual stream comes back. Good ones: `fed-ade-plus` on the stored streams, compared at every batch.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from research.accuracy_streams import deployed
from research.accuracy_streams import images as images_of
from speed.adapter import read
from torch import Tensor, nn

import fedade
from fedade.adapter.judging import DeployedComparison
from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.data.corruptions.registry import corrupt
from fedade.methods.fed_ade_plus.method import FedAdePlus

LEARNING, BATCHES, BATCH, CLASSES = 12, 24, 50, 10
SEEDS = range(100, 105)


class Stopping(FedAdePlus):
    """`fed-ade-plus`, which learns nothing after the first batches: a state that was good once."""

    def observe(self, ctx: ClientContext, state: Any) -> tuple[Any, dict[str, Tensor]]:
        if ctx.timestep <= LEARNING:
            return super().observe(ctx, state)
        return state, {"prior": state.prior}


@dataclass(frozen=True)
class Trial:
    """One client's stream: inputs are as usual after the first batches."""

    method: str
    disturbance: str
    seed: int

    def batches(self, images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        draw = np.random.default_rng(self.seed)
        by_class = [np.flatnonzero(labels.numpy() == label) for label in range(CLASSES)]
        burst = draw.integers(CLASSES)
        for step in range(BATCHES):
            early = step < LEARNING
            alone = early and self.disturbance == "burst"
            classes = np.full(BATCH, burst) if alone else draw.integers(CLASSES, size=BATCH)
            rows = np.array([draw.choice(by_class[label]) for label in classes])
            inputs = images[rows]
            if early and self.disturbance == "noise":
                last = np.ascontiguousarray(np.moveaxis(inputs.numpy(), 1, -1))
                inputs = torch.from_numpy(
                    np.ascontiguousarray(np.moveaxis(corrupt(last, "gaussian_noise", 5, self.seed), -1, 1))
                )
            yield inputs, labels[rows]

    def followed(self, deployment: Deployment, model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Any]:
        """Accuracy of client and deployed model until the first rollback after the state is bad, and when that was."""
        adapter = fedade.Adapter(deployment, Stopping() if self.method == "fed-ade-plus, stopped" else self.method)
        begins = 0 if self.method == "tent" else LEARNING
        right, rolled, before = [], None, 0
        for step, (inputs, known) in enumerate(self.batches(images, labels)):
            answer = adapter(inputs).argmax(-1)
            if step < begins:
                before = adapter.status.rolled_back
            elif rolled is None:
                plain = model(inputs).argmax(-1)
                rolled = step + 1 - begins if adapter.status.rolled_back > before else None
                if rolled is None:
                    right.append([float((one == known).float().mean()) for one in (answer, plain)])
        means = np.mean(right, 0) if right else (float("nan"), float("nan"))
        told = {"adapted": float(means[0]), "deployed": float(means[1]), "batches": BATCHES - begins}
        return {**told, "rolled back": adapter.status.rolled_back - before, "after": rolled}


def bad(data: Path) -> Iterator[dict[str, Any]]:
    model, images, labels = read(data)
    held_out = torch.arange(len(labels)) % 4 == 0
    deployment = fedade.deploy(model, (images[held_out], labels[held_out]), progress=False)
    for method, disturbance in (
        ("tent", "burst"),
        ("fed-ade-plus, stopped", "burst"),
        ("fed-ade-plus, stopped", "noise"),
        ("fed-ade-plus", "burst"),
        ("fed-ade-plus", "noise"),
    ):
        for seed in SEEDS:
            found = Trial(method, disturbance, seed).followed(deployment, model, images[~held_out], labels[~held_out])
            yield {"states": method, "stream": disturbance, "seed": seed, **found}


def good(data: Path, streams: Path) -> Iterator[dict[str, Any]]:
    """Verdicts on `fed-ade-plus`, had it been compared at every batch: none should be bad."""
    deployment, _ = deployed(data / "models", images_of(data).held_out)
    comparison = DeployedComparison()
    for path in sorted(streams.glob("*.npz")):
        split, kind, _, seed, *_ = path.name.split(".") + [""] * 3
        if split not in ("tune", "score", "fresh"):
            continue
        stored = {name: torch.from_numpy(values) for name, values in np.load(path).items()}
        total, rolled = comparison.begin(deployment), 0
        some = slice(None, 2 * comparison.most, 2)
        for prior, adapted, plain in zip(stored["prior"], stored["adapted"], stored["plain"], strict=True):
            total, verdict = comparison.compare(deployment, total, {"prior": prior}, adapted[some], plain[some])
            rolled += verdict.worse is not None
        right = [float((stored[name].argmax(-1) == stored["labels"]).float().mean()) for name in ("adapted", "plain")]
        told = dict(zip(("adapted", "deployed"), right, strict=True))
        rows = {"states": "fed-ade-plus", "stream": f"{split} {kind}", "seed": int(seed), **told}
        yield {**rows, "batches": len(stored["prior"]), "rolled back": rolled, "after": None}


def main() -> None:
    """Write the table and print it."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--streams", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    said = words.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad(), said.out.open("w", newline="") as file:
        table = None
        for row in chain(bad(said.data), good(said.data, said.streams)):
            table = table or csv.DictWriter(file, row, lineterminator="\n")
            if file.tell() == 0:
                table.writeheader()
            table.writerow({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
            print(*row.values(), sep="  ", flush=True)


if __name__ == "__main__":
    main()
