"""Labels that can be trusted: whole numbers, in range, and no class without an example."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedade.core.errors import FedadeError

HELD_OUT_EVERY = 5


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
