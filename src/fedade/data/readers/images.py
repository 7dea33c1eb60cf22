"""Images in files: decoded by threads into arrays of one size; the user's own, a folder per class, and Tiny ImageNet as
its archive unpacks, with `train/<wnid>/images/`, and `val/` with a list of annotations."""

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedade.core.errors import FedadeError
from fedade.data.dataset import held_out_rows, require_every_class, require_one_shape
from fedade.data.download import one_line

ImageShape = tuple[int, int, int]
IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
IMAGES_IN_FLIGHT = 2048
IMAGES_PER_TASK = 64


@dataclass(frozen=True)
class Undecoded:
    """Labelled images whose pixels are not read yet: their labels, their shape, and how to write them out."""

    labels: NDArray[np.int64]
    shape: ImageShape
    decode: Callable[[NDArray[np.uint8]], object]
    """Fills an array `[N, channels, height, width]`."""


@dataclass(frozen=True)
class ImageReading:
    """A dataset as a reader found it on disk, before any pixel is decoded."""

    source: Path
    class_names: tuple[str, ...]
    train: Undecoded
    test: Undecoded

    def __post_init__(self) -> None:
        require_every_class(self.train.labels, self.class_names, self.source)
        require_one_shape(self.train.shape, self.test.shape, self.source)


@dataclass(frozen=True)
class Encoded:
    """One encoded image and the place a message should name when it is bad."""

    source: str
    content: bytes | Path

    def pixels(self, size: int | None = None) -> NDArray[np.uint8]:
        """RGB pixels `[3, height, width]`, resized to a square of the given size where one is given."""
        stream = io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content
        try:
            with Image.open(stream) as image:
                image.load()
                rgb = image if image.mode == "RGB" else image.convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise FedadeError(
                f"{self.source} is not a readable image ({one_line(error)}); replace or remove it"
            ) from error
        if size is not None:
            rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(rgb).transpose(2, 0, 1)


def from_files(rows: Iterable[tuple[Path, int]], size: int | None = None) -> Undecoded:
    """Image files with their labels; the first file sets the shape that all must have."""
    paths, labels = zip(*rows, strict=True)
    images = [Encoded(str(path), path) for path in paths]
    shape = (3, size, size) if size is not None else image_shape(images[0])
    return Undecoded(np.array(labels, dtype=np.int64), shape, lambda out: decode_into(out, images, size))


def image_shape(image: Encoded) -> ImageShape:
    _, height, width = image.pixels().shape
    return 3, height, width


def decode_into(out: NDArray[np.uint8], images: Iterable[Encoded], size: int | None = None) -> None:
    """Decode the images, in order, into the rows of an array `[N, 3, height, width]`."""

    def write(start: int, some: list[Encoded]) -> None:
        for row, image in enumerate(some, start):
            pixels = image.pixels(size)
            if pixels.shape != out.shape[1:]:
                raise FedadeError(
                    f"{image.source} is {_size(pixels.shape)} pixels, the first {_size(out.shape[1:])}; "
                    "make all images one size, or ask for a resize with ?size=PIXELS"
                )
            out[row] = pixels

    remaining = iter(images)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        for start in range(0, len(out), IMAGES_IN_FLIGHT):
            chunk = list(islice(remaining, IMAGES_IN_FLIGHT))
            offsets = range(0, len(chunk), IMAGES_PER_TASK)
            tasks = [threads.submit(write, start + at, chunk[at : at + IMAGES_PER_TASK]) for at in offsets]
            for task in tasks:
                task.result()


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[2]}x{shape[1]}"


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
        rows, test = _labelled(_train(folder), class_names), _test(folder)
        if test is None:
            held_out = held_out_rows(np.array([label for _, label in rows]))
            sides = list(compress(rows, ~held_out)), list(compress(rows, held_out))
        else:
            sides = rows, _labelled(test, class_names)
        return ImageReading(folder, tuple(class_names), *(from_files(side, self.size) for side in sides))


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


def _labelled(part: Path, class_names: list[str]) -> list[tuple[Path, int]]:
    unknown = set(_classes(part)) - set(class_names)
    if unknown:
        raise FedadeError(f"{part}: class {min(unknown)!r} has no training images; add some or remove it")
    rows = [(path, label) for label, name in enumerate(class_names) for path in _images(part / name)]
    if not rows:
        raise FedadeError(f"{part} holds no images; expected {part}/<class>/*.png, .jpg or the like")
    return rows


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
        images = {label: sorted(folder.glob(f"train/{wnid}/images/*.JPEG")) for wnid, label in label_of.items()}
        rows = [(path, label) for label, paths in images.items() for path in paths]
        train, test = _unpacked(rows, folder / "train"), _unpacked(_validation(folder, label_of), folder / "val")
        return ImageReading(folder, tuple(wnids), train, test)


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


def _unpacked(rows: list[tuple[Path, int]], source: Path) -> Undecoded:
    if not rows:
        raise FedadeError(f"{source} holds no images; unpack the archive again")
    return from_files(rows)
