"""Any map-style PyTorch dataset of `(input, label)` pairs as a dataset of this package."""

from collections.abc import Sized
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset

from fedade.core.errors import FedadeError
from fedade.data.dataset import Dataset, Labelled, assemble, checked_labels
from fedade.data.readers.arrays import checked_inputs


def from_named(value: Any, name: str) -> Dataset:
    """What a user named: a dataset, a pair of a training and a test dataset, or a function that returns either."""
    if callable(value) and not isinstance(value, TorchDataset):
        value = value()
    train, test = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    return from_torch(train, test, name)


def from_torch(dataset: TorchDataset[Any], test: TorchDataset[Any] | None = None, name: str = "torch") -> Dataset:
    """The dataset with its inputs stacked: bytes stay bytes, rows of whole numbers stay so, others become float32.
    Without a test part every fifth example of a class is held out. Class names come from the dataset's `classes` where
    it has such a list, as torchvision's have."""
    inputs, raw_labels = _stacked(dataset, name)
    listed = getattr(dataset, "classes", None)
    num_classes = len(listed) if listed else max(raw_labels) + 1
    class_names = tuple(map(str, listed)) if listed else tuple(map(str, range(num_classes)))
    labels = checked_labels(raw_labels, num_classes, name)
    test_part = None
    if test is not None:
        test_inputs, test_labels = _stacked(test, f"{name} (test)")
        test_part = Labelled(test_inputs, checked_labels(test_labels, num_classes, f"{name} (test)"))
    return assemble(name, class_names, Labelled(inputs, labels), test_part, name)


def _stacked(dataset: TorchDataset[Any], source: str) -> tuple[NDArray[np.generic], list[int]]:
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise FedadeError(f"{source} has no length; expected a map-style dataset of (input, label) pairs")
    if len(dataset) == 0:
        raise FedadeError(f"{source} is empty; expected (input, label) pairs")
    first, _ = _pair(dataset[0], source, 0)
    inputs = np.empty((len(dataset), *first.shape), dtype=first.dtype)
    labels = []
    for row in range(len(dataset)):
        example, label = _pair(dataset[row], source, row)
        if example.shape != first.shape or example.dtype != first.dtype:
            raise FedadeError(
                f"{source}: input {row} is {example.dtype} {list(example.shape)}, the first is {first.dtype} "
                f"{list(first.shape)}; all inputs must agree"
            )
        inputs[row] = example
        labels.append(label)
    return checked_inputs(inputs, source), labels


def _pair(item: object, source: str, row: int) -> tuple[NDArray[np.generic], int]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise FedadeError(f"{source}: item {row} is a {type(item).__name__}; expected an (input, label) pair")
    label = np.asarray(item[1])
    if label.size != 1 or label.dtype.kind not in "iu":
        raise FedadeError(f"{source}: label of item {row} is {item[1]!r}; expected one whole number")
    return _as_array(item[0]), int(label.item())


def _as_array(example: object) -> NDArray[np.generic]:
    """Bytes and rows of whole numbers as they are, all else as float32; pictures with their channels first."""
    if isinstance(example, Image.Image):
        return np.asarray(example.convert("RGB")).transpose(2, 0, 1)
    array = example.detach().cpu().numpy() if isinstance(example, torch.Tensor) else np.asarray(example)
    whole = array.dtype == np.uint8 or (array.ndim == 1 and array.dtype.kind in "iu")
    return cast("NDArray[np.generic]", array if whole else array.astype(np.float32))
