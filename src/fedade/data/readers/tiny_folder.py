"""Tiny ImageNet as its archive unpacks: `train/<wnid>/images/` and `val/` with a list of annotations."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedade.core.errors import FedadeError
from fedade.data.readers.images import ImageReading, Undecoded, from_files

ANNOTATIONS = "val/val_annotations.txt"


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
            _labelled(train, folder / "train"),
            _labelled(_validation(folder, label_of), folder / "val"),
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
            raise FedadeError(
                f"{annotations} line {number}: class {wnid!r} is not in wnids.txt; unpack the archive again"
            )
        if (path := annotations.parent / "images" / Path(name).name).is_file():
            rows.append((path, label_of[wnid]))
    return rows


def _labelled(rows: list[tuple[Path, int]], source: Path) -> Undecoded:
    if not rows:
        raise FedadeError(f"{source} holds no images; unpack the archive again")
    paths, labels = zip(*rows, strict=True)
    return from_files(list(paths), np.array(labels, dtype=np.int64))
