"""CIFAR-10 and CIFAR-100 as their authors and torchvision store them: pickled batches of raw pixels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.checksums import damaged
from fedade.data.dataset import checked_labels
from fedade.data.readers.images import ImageReading, ImageShape, Undecoded
from fedade.data.readers.restricted_pickle import PickledArray, load_restricted

SHAPE: ImageShape = (3, 32, 32)


@dataclass(frozen=True)
class CifarBatches:
    """The file names and dictionary keys in which the two releases differ."""

    train: tuple[str, ...]
    test: str
    labels: str
    meta: str
    names: str
    num_classes: int

    def recognises(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in self.train)

    def files(self, folder: Path) -> list[Path]:
        return [path for name in (*self.train, self.test, self.meta) if (path := folder / name).is_file()]

    def read(self, folder: Path) -> ImageReading:
        train = [folder / name for name in self.train if (folder / name).is_file()]
        test = folder / self.test
        if not test.is_file():
            raise FedadeError(f"{folder}: no file {self.test!r} beside the training batches; add it")
        return ImageReading(folder, self._class_names(folder / self.meta), self._part(train), self._part([test]))

    def _part(self, paths: list[Path]) -> Undecoded:
        batches = [self._batch(path) for path in paths]
        pixels = [batch[0] for batch in batches]

        def copy(out: NDArray[np.uint8]) -> None:
            np.concatenate(pixels, out=out)

        return Undecoded(np.concatenate([batch[1] for batch in batches]), SHAPE, copy)

    def _batch(self, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        content = load_restricted(path)
        data, labels = content.get("data"), content.get(self.labels)
        if not isinstance(data, PickledArray) or not isinstance(labels, list):
            raise FedadeError(
                f"{path} is not a CIFAR batch: expected an array 'data' and a list {self.labels!r}, "
                f"found {', '.join(sorted(content)) or 'nothing'}"
            )
        try:
            pixels = data.to_numpy()
            whole_numbers = np.array(labels)
        except (TypeError, ValueError) as error:
            raise damaged(path, str(error)) from error
        if pixels.shape != (len(labels), int(np.prod(SHAPE))):
            raise FedadeError(
                f"{path}: pixels have shape {list(pixels.shape)} for {len(labels)} labels; "
                f"expected one row of {int(np.prod(SHAPE))} per label"
            )
        return pixels.reshape(-1, *SHAPE), checked_labels(whole_numbers, self.num_classes, path)

    def _class_names(self, path: Path) -> tuple[str, ...]:
        names = load_restricted(path).get(self.names) if path.is_file() else None
        if not isinstance(names, list) or len(names) != self.num_classes:
            return tuple(str(label) for label in range(self.num_classes))
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)
