"""Which examples train the model, which calibrate it and which are streamed: fixed, whatever the seed of a run."""

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
