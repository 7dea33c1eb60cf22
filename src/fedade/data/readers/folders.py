"""Images in folders: the user's own, a folder per class, and Tiny ImageNet as its archive unpacks.

The latter has `train/<wnid>/images/`, and `val/` with a list of annotations.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.dataset import held_out_rows
from fedade.data.readers.images import IMAGE_SUFFIXES, ImageReading, Undecoded, from_files

TEST_PARTS = ("test", "val", "valid", "validation")

ANNOTATIONS = "val/val_annotations.txt"


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


@dataclass(frozen=True)
class TinyFolder:
    """The unpacked archive; labels are positions among the sorted wnids, as on the Hugging Face hub."""

    num_classes: int

    def recognises(self, folder: Path) -> bool:
        return (folder / "wnids.txt").is_file() and (folder / "train").is_dir()

    def files(self, folder: Path) -> list[Path]:
        images = [*folder.glob("train/*/images/*.JPEG"), *folder.glob("val/images/*.JPEG")]
        return [folder / "wnids.txt", *folder.glob(ANNOTATIONS), *sorted(images)]

    def read(self, folder: Path) -> ImageReading:
        """The training images, and as test part the validation images: the archive's own has no labels."""
        wnids = sorted((folder / "wnids.txt").read_text(encoding="utf-8", errors="replace").split())
        if len(wnids) != self.num_classes:
            raise FedadeError(f"{folder / 'wnids.txt'} lists {len(wnids)} classes; expected {self.num_classes}")
        label_of = {wnid: label for label, wnid in enumerate(wnids)}
        train = [
            (path, label)
            for wnid, label in label_of.items()
            for path in sorted(folder.glob(f"train/{wnid}/images/*.JPEG"))
        ]
        return ImageReading(
            folder,
            tuple(wnids),
            _unpacked(train, folder / "train"),
            _unpacked(_validation(folder, label_of), folder / "val"),
        )


def _validation(folder: Path, label_of: dict[str, int]) -> list[tuple[Path, int]]:
    annotations = folder / ANNOTATIONS
    if not annotations.is_file():
        raise FedadeError(f"{annotations} is missing; unpack the archive again")
    rows = []
    for number, line in enumerate(annotations.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in label_of:
            raise FedadeError(f"{annotations} line {number}: {wnid!r} is not in wnids.txt; unpack the archive again")
        if (path := annotations.parent / "images" / Path(name).name).is_file():
            rows.append((path, label_of[wnid]))
    return rows


def _unpacked(rows: list[tuple[Path, int]], source: Path) -> Undecoded:
    if not rows:
        raise FedadeError(f"{source} holds no images; unpack the archive again")
    paths, labels = zip(*rows, strict=True)
    return from_files(list(paths), np.array(labels, dtype=np.int64))
