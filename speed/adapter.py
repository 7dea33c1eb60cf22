"""A public CIFAR-10 ResNet-20 through `fedade.Adapter`: accuracy by kind of shift, single images, cost of a call.

`python speed/adapter.py DATA --out docs/results/adapter.csv`; DATA holds `cifar10/plain_text` (Hugging Face's
parquet) and `models/cifar10-resnet20.safetensors`. Every fourth test image is held out, the others are streamed.
"""

import argparse
import csv
import io
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import fedade
from fedade.core.deployment import Deployment
from fedade.core.paths import cache_dir
from fedade.core.seeds import Seeds
from fedade.data.corruptions.registry import corrupted_pool, digest_of
from fedade.maths.priors.reweighting import apply_temperature
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import ShiftStreams, client_schedules, initial_priors, target_priors
from networks import CifarResNet

BATCH, CORRUPTIONS = 50, ("gaussian_noise", "motion_blur", "contrast")


class ResNet(CifarResNet):
    """The published network, from stored pixels."""

    def __init__(self) -> None:
        super().__init__()
        for name, values in (("mean", (0.485, 0.456, 0.406)), ("deviation", (0.229, 0.224, 0.225))):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return super().forward((pixels / 255 - self.mean) / self.deviation)


def read(data: Path) -> tuple[ResNet, Tensor, Tensor]:
    table = pq.read_table(data / "cifar10/plain_text/test-00000-of-00001.parquet").to_pydict()
    images = np.stack([np.asarray(Image.open(io.BytesIO(image["bytes"]))) for image in table["img"]])
    model = ResNet()
    model.load_state_dict(load_file(data / "models/cifar10-resnet20.safetensors"), strict=False)
    return (
        model.eval(),
        torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))),
        torch.tensor(table["label"]),
    )


class Bench:
    def __init__(self, data: Path, clients: int, timesteps: int) -> None:
        self.model, images, labels = read(data)
        held_out = torch.arange(len(labels)) % 4 == 0
        self.deployment: Deployment = fedade.deploy(self.model, (images[held_out], labels[held_out]))
        self.pool, self.labels = images[~held_out], labels[~held_out]
        self.clients, self.timesteps = clients, timesteps
        self.pixels = cache(self._pixels)

    def _pixels(self, corruption: str, severity: int) -> Tensor:
        if severity == 0:
            return self.pool
        last = np.ascontiguousarray(self.pool.permute(0, 2, 3, 1).numpy())
        made = corrupted_pool(last, corruption, severity, 0, cache_dir() / "corrupted", digest_of(last))
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.asarray(made), -1, 1)))

    def streams(self, kind: str) -> ShiftStreams:
        """`noise` is Gaussian noise of the highest severity from the first image on."""
        asked = "none" if kind == "noise" else kind
        settings = ScenarioSettings(
            kind=asked, num_clients=self.clients, num_timesteps=self.timesteps, samples=BATCH, schedule="lin"
        )
        seeds = Seeds(0)
        pixels = (lambda *_: self.pixels("gaussian_noise", 5)) if kind == "noise" else self.pixels
        rows = tuple(np.flatnonzero(self.labels.numpy() == label) for label in range(10))
        priors = initial_priors(settings, seeds, 10), target_priors(settings, seeds, 10)
        return ShiftStreams(
            settings, seeds, pixels, rows, *priors, client_schedules(settings, seeds), CORRUPTIONS, "cpu"
        )

    def accuracy(self, kind: str, method: str, size: int = BATCH, **settings) -> tuple[float, int]:
        """Percent right over all clients, and how often a state was given up."""
        streams, right, count, rolled_back = self.streams(kind), 0, 0, 0
        for client in range(self.clients):
            adapter = (
                None if method == "oracle-prior" else fedade.Adapter(self.deployment, method, client=client, **settings)
            )
            for timestep in range(1, self.timesteps + 1):
                batch = streams.draw(np.array([client]), timestep)
                inputs, labels = batch.inputs[0], batch.labels[0]
                if adapter is None:
                    answer = self._oracle(inputs, batch.prior[0])
                else:
                    answer = torch.cat([adapter(part) for part in inputs.split(size)])
                right, count = right + int((answer.argmax(-1) == labels).sum()), count + len(labels)
            rolled_back += 0 if adapter is None else adapter.status.rolled_back
        return 100 * right / count, rolled_back

    @torch.no_grad()
    def _oracle(self, inputs: Tensor, prior: Tensor) -> Tensor:
        probabilities = apply_temperature(self.model(inputs), self.deployment.temperature).softmax(-1)
        return probabilities * prior / self.deployment.mean_prediction

    @torch.no_grad()
    def cost(self, size: int, kind: str = "none", method: str = "fed-ade-plus") -> float:
        """Time of 64 calls in plain forward passes of the same batches, the two measured in turn.

        All calls count: some learn and some do not, some need a second pass, every eighth is compared.
        """
        adapter, plain, adapted = fedade.Adapter(self.deployment, method), 0.0, 0.0
        pool = self.pixels("gaussian_noise", 5) if kind == "noise" else self.pool
        for start in range(0, 64 * size, size):
            inputs = pool[start : start + size]
            begun = time.thread_time()
            self.model(inputs)
            between = time.thread_time()
            adapter(inputs)
            plain, adapted = plain + between - begun, adapted + time.thread_time() - between
        return adapted / plain


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("data", type=Path)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--clients", type=int, default=3)
    asked.add_argument("--timesteps", type=int, default=40)
    chosen = asked.parse_args()
    torch.set_num_threads(1)
    bench, rows = Bench(chosen.data, chosen.clients, chosen.timesteps), []
    batch_statistics = {"mode": "batch"}
    for kind, method, size, settings in (
        *(
            (kind, method, BATCH, {})
            for kind in ("none", "label", "both", "noise")
            for method in ("source", "fed-ade-plus")
        ),
        ("label", "oracle-prior", BATCH, {}),
        *(
            (kind, method, BATCH, own)
            for kind in ("both",)
            for method, own in (("tent", {}), ("bn-adapt", batch_statistics))
        ),
        *((kind, "fed-ade-plus", 1, {}) for kind in ("label", "noise")),
    ):
        accuracy, rolled_back = bench.accuracy(kind, method, size, **settings)
        rows.append(
            {
                "measure": "accuracy",
                "shift": kind,
                "method": method,
                "batch": size,
                "value": round(accuracy, 2),
                "rolled_back": rolled_back,
            }
        )
        print(rows[-1], flush=True)
    for kind, size in (("none", BATCH), ("noise", BATCH), ("none", 1)):
        rows.append(
            {
                "measure": "cost in forward passes",
                "shift": kind,
                "method": "fed-ade-plus",
                "batch": size,
                "value": round(bench.cost(size, kind), 2),
                "rolled_back": 0,
            }
        )
        print(rows[-1], flush=True)
    if chosen.out:
        with chosen.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
