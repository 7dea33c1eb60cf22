"""How the accuracy monitor does on small networks of vectors: scikit-learn's digits and breast cancer, drifting.

python research/accuracy_on_vectors.py docs/results/accuracy-on-vectors.csv

Seed 0 of the digits under noise is what the monitor was built on (`tune`); other seeds, the other table and the other
drifts are scored (`score`). Estimates are of the last 500 samples, as is the accuracy beside them.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn

import fedade

BATCH, BATCHES = 50, 10
TABLES = {"digits": (load_digits, 500, 600), "breast cancer": (load_breast_cancer, 180, 200)}
"""Samples that a network is trained on, and held-out ones."""
COLUMNS = (
    "split", "table", "seed", "method", "drift", "strength", "accuracy", "estimated_accuracy", "low", "high", "covered",
    "alarm",
)  # fmt: skip
SEEDS = {"digits": (0, 1, 2, 3), "breast cancer": (1, 2, 3)}


DRIFTS = {"noise": (0.0, 0.5, 1.0, 1.5, 2.5, 4.0), "dead features": (0.2, 0.4, 0.6), "gain": (0.5, 1.5, 2.5)}
"""Kinds and strengths: of noise in units of the features' mean deviation, the share that is dead, the factor."""


def drifted(inputs: Tensor, kind: str, strength: float, deviation: Tensor, generator: torch.Generator) -> Tensor:
    """Noise of one size in every feature; features that show their least value, always the same; or another scale."""
    if kind == "noise":
        return inputs + strength * deviation.mean() * torch.randn(inputs.shape, generator=generator)
    if kind == "gain":
        return strength * inputs
    return torch.where(torch.arange(inputs.shape[1]) % 100 < 100 * strength, inputs.amin(0), inputs)


def trained(inputs: Tensor, labels: Tensor, classes: int, seed: int) -> nn.Module:
    """A network of one hidden layer with BatchNorm."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        model = nn.Sequential(nn.Linear(inputs.shape[1], 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model.eval()


def rows(table: str, seed: int) -> Iterator[list[object]]:
    """One for each method and drift."""
    load, number, held = TABLES[table]
    data, generator = load(), torch.Generator().manual_seed(seed)
    inputs, labels = torch.from_numpy(data.data).float(), torch.from_numpy(data.target).long()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0) if table != "digits" else inputs / 16
    order = torch.randperm(len(labels), generator=generator)
    inputs, labels = inputs[order], labels[order]
    model = trained(inputs[:number], labels[:number], int(labels.max()) + 1, seed)
    held_out = inputs[number : number + held], labels[number : number + held]
    deployment = fedade.deploy(model, held_out, progress=False)
    rest, hidden, deviation = inputs[number + held :], labels[number + held :], inputs.std(0)
    for method in ("source", "fed-ade-plus"):
        monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out, method)
        for kind, strengths in DRIFTS.items():
            for strength in strengths:
                adapter, hits = fedade.Adapter(deployment, method, monitor=monitor), []
                for _ in range(BATCHES):
                    places = torch.randint(len(rest), (BATCH,), generator=generator)
                    answer = adapter(drifted(rest[places], kind, strength, deviation, generator))
                    hits.append((answer.argmax(-1) == hidden[places]).float())
                status, accuracy = adapter.status, float(torch.cat(hits).mean())
                low, high = status.accuracy_interval or (0.0, 1.0)
                split = "tune" if (table, kind, seed) == ("digits", "noise", 0) else "score"
                yield [
                    split, table, seed, method, kind, strength, f"{accuracy:.3f}", f"{status.estimated_accuracy:.3f}",
                    f"{low:.3f}", f"{high:.3f}", low <= accuracy <= high, status.alarm,
                ]  # fmt: skip


def main(path: Path) -> None:
    """Write a line per table, seed, method and drift."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for table, seeds in SEEDS.items():
            for seed in seeds:
                writer.writerows(rows(table, seed))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
