"""Encoded images and the arrays they are decoded into: threads, one size, three channels."""

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedade.core.errors import FedadeError
from fedade.data.dataset import require_every_class, require_one_shape
from fedade.data.download import one_line

ImageShape = tuple[int, int, int]
IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
# Enough to keep every thread busy, few enough that encoded bytes never pile up in memory.
IMAGES_IN_FLIGHT = 2048
# Small images decode faster than threads hand them over one by one.
IMAGES_PER_TASK = 64


@dataclass(frozen=True)
class Undecoded:
    """Labelled images whose pixels are not read yet: their labels, their shape, and how to write them out."""

    labels: NDArray[np.int64]
    shape: ImageShape
    decode: Callable[[NDArray[np.uint8]], None]
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


def from_files(paths: list[Path], labels: NDArray[np.int64], size: int | None = None) -> Undecoded:
    """Image files with their labels; the first file sets the shape that all must have."""
    images = [Encoded(str(path), path) for path in paths]
    shape = (3, size, size) if size is not None else image_shape(images[0])
    return Undecoded(labels, shape, lambda out: decode_into(out, images, size))


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
