"""How the accuracy monitor does on a small network of vectors (scikit-learn's digits under noise): it does badly.

python research/accuracy_on_vectors.py docs/results/accuracy-on-vectors.csv
"""

import csv
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fedade

TRAINED, HELD_OUT, BATCH = 500, 600, 50


def trained(inputs: Tensor, labels: Tensor) -> nn.Module:
    """A network of one hidden layer with BatchNorm."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model.eval()


def main(path: Path) -> None:
    """Write a line per method and strength of noise."""
    data = load_digits()
    inputs, labels = torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs, labels = inputs[order], labels[order]
    held_out = inputs[TRAINED : TRAINED + HELD_OUT], labels[TRAINED : TRAINED + HELD_OUT]
    deployment = fedade.deploy(trained(inputs[:TRAINED], labels[:TRAINED]), held_out, progress=False)
    rows = []
    for method in ("source", "fed-ade-plus"):
        monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out, method)
        for noise in (0.0, 0.1, 0.2, 0.3, 0.5, 0.8):
            adapter, generator, hits = fedade.Adapter(deployment, method, monitor=monitor), torch.Generator(), []
            generator.manual_seed(1)
            for first in range(TRAINED + HELD_OUT, len(labels) - BATCH + 1, BATCH):
                batch = inputs[first : first + BATCH]
                batch = batch + noise * torch.randn(batch.shape, generator=generator)
                hits.append((adapter(batch).argmax(-1) == labels[first : first + BATCH]).float())
            status = adapter.status
            accuracy = float(torch.cat(hits).mean())
            rows.append([method, noise, f"{accuracy:.4f}", f"{status.estimated_accuracy:.4f}", status.alarm])
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["method", "noise", "accuracy", "estimated_accuracy", "alarm_at_the_end"])
        writer.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
