"""Where does `fed-ade-plus` do harm? Small networks of many shapes, few labelled data, every kind of shift.

python research/small_networks.py --seeds 0 1 2 --references 5 30 --out docs/results/small-networks.csv
python research/small_networks.py --summary docs/results/small-networks.csv --out FILE.csv

Batches of 50, a client for each corruption. `source` and batch statistics do not depend on the labelled data. The
summary says how far `fed-ade-plus` is from the better of these two.
"""

import argparse
import csv
import os
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from research.small_network_shapes import SHAPES, Labelled, Task, trained
from torch import Tensor, nn
from torch.func import vmap

from fedade.adapter.deploying import deploy
from fedade.core import tree
from fedade.core.context import ClientContext, context_before_first_batch
from fedade.core.deployment import Deployment
from fedade.core.method import Method
from fedade.core.seeds import Seeds
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.source import Source
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import ShiftStreams, client_schedules, initial_priors, target_priors

TIMESTEPS, BATCH = 30, 50
REFERENCES = (5, 10, 30, 100)
COLUMNS = ("network", "seed", "kind", "schedule", "method", "labelled per class", "accuracy")
SUMMARY = ("table", "row", "column", "text")
HARM = 0.5
"""Points below the better of the two from which on a cell is missed."""
KINDS = ("none", "label", "covariate", "both")


def held_out(task: Task, per_class: int) -> Labelled:
    """So many labelled samples of every class, or as many as there are."""
    inputs, labels = task.held_out
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    rows = torch.cat([order[labels[order] == label][:per_class] for label in range(task.classes)])
    return Labelled(inputs[rows], labels[rows])


def streams(task: Task, kind: str, schedule: str, seed: int) -> ShiftStreams:
    inputs, labels = task.streamed
    pools: dict[tuple[str, int], Tensor] = {}

    def pool(corruption: str, severity: int) -> Tensor:
        key = corruption, severity
        if key not in pools:
            pools[key] = task.corrupt(inputs, *key) if severity else inputs
        return pools[key]

    settings = ScenarioSettings(
        kind=kind, num_clients=len(task.corruptions), num_timesteps=TIMESTEPS, samples=BATCH, schedule=schedule
    )
    seeds = Seeds(seed)
    rows = tuple(np.flatnonzero(labels.numpy() == label) for label in range(task.classes))
    priors = (law(settings, seeds, task.classes) for law in (initial_priors, target_priors))
    return ShiftStreams(
        settings, seeds, pool, rows, *priors, client_schedules(settings, seeds), task.corruptions, "cpu"
    )


def followed(
    method: Method, deployment: Deployment, number: Tensor, inputs: Tensor, before: tree.Tree
) -> tuple[tree.Tree, Tensor]:
    """A client's state after a batch, and its answers."""
    ctx = ClientContext(deployment, inputs, number, number)
    after, _ = method.observe(ctx, before)
    return after, method.predict(ctx.after_observing(), after)


@torch.no_grad()
def accuracy(method: Method, deployment: Deployment, stream: ShiftStreams) -> float:
    """Percent right over all clients, which are mapped."""
    clients = np.arange(stream.num_clients)
    state = tree.repeat(method.begin(context_before_first_batch(deployment)), len(clients))
    right = []
    for timestep in range(1, stream.num_timesteps + 1):
        number, batch = torch.tensor(timestep), stream.draw(clients, timestep)

        state, answers = vmap(partial(followed, method, deployment, number))(batch.inputs, state)
        right.append((answers.argmax(-1) == batch.labels).float().mean())
    return 100 * float(torch.stack(right).mean())


def cells(name: str, seed: int, references: tuple[int, ...]) -> Iterator[dict[str, object]]:
    shape = SHAPES[name]
    task = shape.task(seed)
    model = trained(shape, task, seed)
    references = tuple(number for number in references if number <= len(task.held_out.labels) / task.classes)
    deployments = {number: deploy(model, held_out(task, number), progress=False) for number in references}
    several: list[tuple[str, Method, int]] = [("source", Source(), references[-1])]
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()):
        several.append(("batch statistics", BnAdapt(mode="batch"), references[-1]))
    several += [("fed-ade-plus", FedAdePlus(), number) for number in references]
    for kind in KINDS:
        for schedule in ("lin",) if kind == "none" else ("lin", "squ"):
            stream = streams(task, kind, schedule, seed)
            for method, made, number in several:
                labelled = number if method == "fed-ade-plus" else ""
                right = round(accuracy(made, deployments[number], stream), 2)
                yield dict(zip(COLUMNS, (name, seed, kind, schedule, method, labelled, right), strict=True))


def summary(path: Path) -> Iterator[dict[str, object]]:
    """By network and kind of shift: points to the better of `source` and batch statistics, their mean and the least."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    better: dict[tuple[str, ...], float] = {}
    for line in lines:
        if line["method"] != "fed-ade-plus":
            cell = tuple(line[part] for part in COLUMNS[:4])
            better[cell] = max(better.get(cell, 0.0), float(line["accuracy"]))
    gains: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        if line["method"] == "fed-ade-plus":
            gain = float(line["accuracy"]) - better[tuple(line[part] for part in COLUMNS[:4])]
            for network in (line["network"], "all"):
                gains.setdefault((network, line["kind"]), []).append(gain)
                gains.setdefault((network, "missed"), []).append(gain)
    networks = dict.fromkeys(network for network, _ in gains if network != "all")
    for network, kind in product((*networks, "all"), (*KINDS, "missed")):
        found = gains[network, kind]
        missed = f"{sum(gain < -HARM for gain in found)} of {len(found)}"
        text = missed if kind == "missed" else f"{np.mean(found):+.1f} ({min(found):+.1f})"
        yield dict(zip(SUMMARY, ("small networks", network, kind, text), strict=True))


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seeds", type=int, nargs="+", default=[0])
    asked.add_argument("--networks", nargs="+", default=list(SHAPES), choices=SHAPES)
    asked.add_argument("--references", type=int, nargs="+", default=REFERENCES)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--summary", type=Path)
    chosen = asked.parse_args()
    torch.set_num_threads(1)
    with (chosen.out or Path(os.devnull)).open("w", newline="", buffering=1) as file:
        writer = csv.DictWriter(file, SUMMARY if chosen.summary else COLUMNS, lineterminator="\n")
        writer.writeheader()
        if chosen.summary:
            writer.writerows(summary(chosen.summary))
            return
        for seed in chosen.seeds:
            for name in chosen.networks:
                for row in cells(name, seed, tuple(chosen.references)):
                    writer.writerow(row)
                    print(*row.values(), sep=", ", flush=True)


if __name__ == "__main__":
    main()
