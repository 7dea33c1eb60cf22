"""What a dataset is: labelled arrays, in parts, that may live on disk; and what is refused in a user's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedade.core.errors import FedadeError

HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Labelled:
    """Inputs with their labels; inputs may be a memory-mapped array and are never copied whole.

    Images are `[N, channels, height, width]`, uint8 in 0..255.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: NDArray[np.int64]) -> "Labelled":
        return Labelled(self.inputs[rows], self.labels[rows])


@dataclass(frozen=True)
class Dataset:
    """A named dataset: what models are trained on, and what they are tested on."""

    name: str
    class_names: tuple[str, ...]
    train: Labelled
    test: Labelled
    partial: str | None = None
    """Why this copy is incomplete, for example "30,000 of 50,000 training images"; None when it is whole."""

    one_part: bool = False
    """Whether the data came in one part, of which every fifth example of a class became the test part."""

    @property
    def whole(self) -> Labelled:
        inputs, labels = zip(*((part.inputs, part.labels) for part in (self.train, self.test)), strict=True)
        return Labelled(np.concatenate(inputs), np.concatenate(labels))

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.inputs.shape[1:])


def checked_labels(values: ArrayLike, num_classes: int, source: object) -> NDArray[np.int64]:
    """The labels as a vector of int64 in `0 .. num_classes - 1`, or an error that names their source."""
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise FedadeError(f"{source}: labels have shape {list(labels.shape)}; expected one label per row")
    if len(labels) == 0:
        raise FedadeError(f"{source}: it holds no labels; expected at least one row")
    if labels.dtype.kind not in "iu":
        raise FedadeError(f"{source}: labels are {labels.dtype}; expected whole numbers, one per row")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise FedadeError(
            f"{source}: label {labels[wrong[0]]} in row {wrong[0]} is out of range; "
            f"{num_classes} classes are numbered 0 to {num_classes - 1}"
        )
    return labels.astype(np.int64)


def require_every_class(labels: NDArray[np.int64], class_names: Sequence[str], source: object) -> None:
    """Raise when a class has no example, of which nothing could be learnt, or when there is only one class."""
    if len(class_names) < 2:
        raise FedadeError(
            f"{source}: every example is of class {class_names[0]!r}; bring examples of two or more classes"
        )
    absent = np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)
    if len(absent):
        named = ", ".join(repr(class_names[index]) for index in absent[:3])
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise FedadeError(f"{source}: no training example of class {named}{more}; add examples or remove the class")


def held_out_rows(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Every fifth example of each class, in the order given: the test set of data that come without one."""
    held_out = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        held_out[np.flatnonzero(labels == label)[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]] = True
    if not held_out.any():
        raise FedadeError(
            f"no test examples were given and no class has the {HELD_OUT_EVERY} examples "
            "needed to hold one out; add a test part"
        )
    return held_out


def assemble(
    name: str, class_names: tuple[str, ...], train: Labelled, test: Labelled | None, source: Path | str
) -> Dataset:
    """A dataset of the two parts; without a test part every fifth training example of a class is held out."""
    one_part = test is None
    if test is None:
        held_out = held_out_rows(train.labels)
        test = Labelled(train.inputs[held_out], train.labels[held_out])
        train = Labelled(train.inputs[~held_out], train.labels[~held_out])
    require_every_class(train.labels, class_names, source)
    require_one_shape(train.inputs.shape[1:], test.inputs.shape[1:], source)
    return Dataset(name, class_names, train, test, one_part=one_part)


def require_one_shape(train: tuple[int, ...], test: tuple[int, ...], source: Path | str) -> None:
    if train != test:
        raise FedadeError(
            f"{source}: training inputs have shape {list(train)}, test inputs {list(test)}; they must agree"
        )
