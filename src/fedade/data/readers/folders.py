"""The user's own images: one folder per class, as torchvision's ImageFolder expects them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.dataset import held_out_rows
from fedade.data.readers.images import IMAGE_SUFFIXES, ImageReading, from_files

TEST_PARTS = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class ImageFolder:
    """`train/<class>/*.png` with `test/<class>/` beside it, or `<class>/*.png` alone.

    Without a test part every fifth image of a class is held out. With a size, every image is resized to a
    square of so many pixels; without one, all must have the same size.
    """

    size: int | None = None

    def files(self, folder: Path) -> list[Path]:
        parts = [part for part in (_train(folder), _test(folder)) if part is not None]
        return [path for part in parts for name in _classes(part) for path in _images(part / name)]

    def has_one_part(self, folder: Path) -> bool:
        return _test(folder) is None

    def read(self, folder: Path) -> ImageReading:
        """The images of both parts; classes are the sub-folders of the training part, sorted."""
        class_names = _classes(_train(folder))
        paths, labels = _labelled(_train(folder), class_names)
        test = _test(folder)
        if test is None:
            held_out = held_out_rows(labels)
            test_paths, test_labels = _at(paths, held_out), labels[held_out]
            paths, labels = _at(paths, ~held_out), labels[~held_out]
        else:
            test_paths, test_labels = _labelled(test, class_names)
        return ImageReading(
            folder,
            tuple(class_names),
            from_files(paths, labels, self.size),
            from_files(test_paths, test_labels, self.size),
        )


def _train(folder: Path) -> Path:
    return folder / "train" if (folder / "train").is_dir() else folder


def _test(folder: Path) -> Path | None:
    if _train(folder) == folder:
        return None
    return next((folder / part for part in TEST_PARTS if (folder / part).is_dir()), None)


def _classes(part: Path) -> list[str]:
    if not part.is_dir():
        raise FedadeError(f"{part} is not a folder; name one that holds a sub-folder of images per class")
    return sorted(path.name for path in part.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)


def _labelled(part: Path, class_names: list[str]) -> tuple[list[Path], NDArray[np.int64]]:
    unknown = set(_classes(part)) - set(class_names)
    if unknown:
        raise FedadeError(f"{part}: class {min(unknown)!r} has no training images; add some or remove it")
    rows = [(path, label) for label, name in enumerate(class_names) for path in _images(part / name)]
    if not rows:
        raise FedadeError(f"{part} holds no images; expected {part}/<class>/*.png, .jpg or the like")
    paths, labels = zip(*rows, strict=True)
    return list(paths), np.array(labels, dtype=np.int64)


def _at(paths: list[Path], rows: NDArray[np.bool_]) -> list[Path]:
    return [paths[row] for row in np.flatnonzero(rows)]
