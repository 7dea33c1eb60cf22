"""What a dataset is: labelled arrays, in parts, that may live on disk."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        """The given rows, in the given order."""
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
        """Both parts as one."""
        inputs, labels = zip(*((part.inputs, part.labels) for part in (self.train, self.test)), strict=True)
        return Labelled(np.concatenate(inputs), np.concatenate(labels))

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.inputs.shape[1:])
