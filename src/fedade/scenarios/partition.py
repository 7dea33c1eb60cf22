"""Which examples train the model, calibrate it, are streamed, or are a client's own labelled data. But for the last
they are the same whatever the seed of a run."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.data.dataset import Dataset, Labelled
from fedade.scenarios.settings import ScenarioSettings, SourceDistribution

_SPLIT = Seeds(0)
"""The same split for every run: a stream must never hold an example that some run trained on."""


class Partition(NamedTuple):
    """Disjoint examples, by their part."""

    trained: Labelled
    held_out: Labelled
    """Labelled, at the server, never trained on: confusion matrix, temperature, reference set."""
    pool: Labelled
    """What the streams draw from."""


def partition(dataset: Dataset, settings: ScenarioSettings) -> Partition:
    """80 of 100 training examples train. Labels shift on the other 20, inputs on the test examples; what is left
    of the two is held out. With `train_size` the training side is divided by number and the test side is streamed.
    Where nothing is trained, a quarter of what the model has not seen is held out and the rest is streamed.
    """
    if settings.pretraining is None:
        unseen = dataset.whole if dataset.one_part else dataset.test
        first, rest = _stratified(unseen.labels, 0.25)
        return Partition(unseen.select(first[:0]), unseen.select(first), unseen.select(rest))
    if settings.train_size is not None:
        if settings.train_size >= len(dataset.train):
            raise FedadeError(
                f"scenario.train_size: {settings.train_size} leaves nothing to hold out of {len(dataset.train)} "
                "training examples; choose a smaller number"
            )
        first, rest = np.split(np.arange(len(dataset.train)), [settings.train_size])
        trained, held_out, pool = dataset.train.select(first), dataset.train.select(rest), dataset.test
    else:
        first, rest = _stratified(dataset.train.labels, 0.8)
        trained, untrained = dataset.train.select(first), dataset.train.select(rest)
        held_out, pool = (untrained, dataset.test) if settings.shifts_inputs else (dataset.test, untrained)
    kept = _with_distribution(trained.labels, source_prior(settings.source, dataset.num_classes))
    return Partition(trained.select(kept), held_out, pool)


def source_prior(source: SourceDistribution, num_classes: int) -> NDArray[np.float64]:
    """Class distribution of the pre-training data: flat, a bell over the classes, or a long tail of 10 to 1."""
    classes = np.arange(num_classes)
    masses = {
        "uniform": np.ones(num_classes),
        "gaussian": np.exp(-0.5 * ((classes - (num_classes - 1) / 2) / (num_classes / 4)) ** 2),
        "exponential": 0.1 ** (classes / max(1, num_classes - 1)),
    }[source]
    return np.asarray(masses / masses.sum())


def _stratified(labels: NDArray[np.int64], share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of both sides of a split that keeps the classes' proportions."""
    first = []
    for label in np.unique(labels):
        rows = _SPLIT.generator("split", label=int(label)).permutation(np.flatnonzero(labels == label))
        first.append(rows[: round(share * len(rows))])
    chosen = np.sort(np.concatenate(first))
    return chosen, np.setdiff1d(np.arange(len(labels)), chosen)


def _with_distribution(labels: NDArray[np.int64], prior: NDArray[np.float64]) -> NDArray[np.int64]:
    """As many rows as there are with the given class distribution; all of them for a flat one."""
    if np.allclose(prior, prior[0]):
        return np.arange(len(labels))
    counts = np.bincount(labels, minlength=len(prior))
    wanted = np.floor(prior * (counts / prior).min()).astype(int)
    rows = [
        _SPLIT.generator("source", label=label).permutation(np.flatnonzero(labels == label))[:number]
        for label, number in enumerate(wanted)
    ]
    return np.sort(np.concatenate(rows))


COMMON = ", or set scenario.reference to common"


class ClientRows(NamedTuple):
    """Rows of the held-out examples, `[C, n]`, and whether no two clients share any."""

    rows: NDArray[np.int64]
    disjoint: bool


def client_rows(
    labels: NDArray[np.int64], num_classes: int, num_clients: int, size: int, seeds: Seeds, remedy: str = COMMON
) -> ClientRows:
    """Every client's own examples (x_c⁰, y_c⁰): dealt out where there are enough for all, else drawn independently.
    Where these cannot hold one of each class, `remedy` says what else could be done."""
    by_class = [np.flatnonzero(labels == label) for label in range(num_classes)]
    available = np.array([len(rows) for rows in by_class])
    refuse_too_many(size, len(labels))
    if not available.all():
        raise FedadeError(
            f"class {int(np.argmin(available))} has no held-out example, and every client needs one of each class; "
            f"bring more data{remedy}"
        )
    refuse_too_few(size, num_classes, remedy)
    wanted = np.stack([_share_of_classes(client, size, available) for client in range(num_clients)])
    disjoint = bool((wanted.sum(0) <= available).all())
    rows = []
    for label, own in enumerate(by_class):
        if disjoint:
            dealt = seeds.generator("reference", label=label).permutation(own)
            rows.append(np.split(dealt[: wanted[:, label].sum()], np.cumsum(wanted[:, label])[:-1]))
        else:
            rows.append([
                seeds.generator("reference", label=label, client=client).permutation(own)[:count]
                for client, count in enumerate(wanted[:, label])
            ])  # fmt: skip
    return ClientRows(np.stack([np.sort(np.concatenate(parts)) for parts in zip(*rows, strict=True)]), disjoint)


def refuse_too_few(size: int, num_classes: int, remedy: str = "") -> None:
    if size < num_classes:
        raise FedadeError(
            f"scenario.reference_size: {size} examples cannot hold one of each of {num_classes} classes; set it to "
            f"{num_classes} or more{remedy}"
        )


def refuse_too_many(size: int, held_out: int) -> None:
    if size > held_out:
        raise FedadeError(
            f"scenario.reference_size: {size} examples are asked for and {held_out} are held out; set it to "
            f"{held_out} or less, or bring more data"
        )


def _share_of_classes(client: int, size: int, available: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of each class: as many of all as there are, and one more of as many as it takes, other ones for other
    clients."""
    within = [np.minimum(available, level).sum() for level in range(available.max() + 1)]
    counts = np.minimum(available, np.searchsorted(within, size, "right") - 1)
    roomy = np.flatnonzero(available > counts)
    counts[np.roll(roomy, -client)[: size - counts.sum()]] += 1
    return counts
