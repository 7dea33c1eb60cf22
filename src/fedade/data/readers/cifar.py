"""CIFAR-10 and CIFAR-100 as their authors and torchvision store them, in pickled batches of raw pixels, and their
corrupted test images (Hendrycks and Dietterich, 2019) as released: an array per corruption, severity after severity.

A pickle names the functions it wants called. Here every name is looked up in a closed table of stand-ins that only keep
what they are given, so that neither numpy's own unpickling nor any other code sees hostile state.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.data.corruptions.registry import MAX_SEVERITY, PUBLISHED
from fedade.data.dataset import checked_labels
from fedade.data.download import damaged, one_line, unreadable_array
from fedade.data.readers.images import ImageReading, ImageShape, Undecoded

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
        pixels, labels = zip(*map(self._batch, paths), strict=True)
        return Undecoded(np.concatenate(labels), SHAPE, lambda out: np.concatenate(pixels, out=out))

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


class PickledDtype:
    """Stands in for `numpy.dtype`: keeps the type code."""

    code: str = ""

    def __init__(self, code: object, *_flags: object) -> None:
        self.code = str(code)

    def __setstate__(self, _state: object) -> None:
        """Byte order and layout of multi-byte types; the bytes of these files have neither."""


class PickledArray:
    """Stands in for `numpy.ndarray` and the function that rebuilds one: keeps shape, type and raw bytes."""

    state: object = None

    def __init__(self, *_placeholder: object) -> None:
        """numpy's pickles first ask for an empty array and then set its state."""

    def __setstate__(self, state: object) -> None:
        self.state = state

    def to_numpy(self) -> NDArray[np.uint8]:
        """The array of bytes, rebuilt from its parts; ValueError when they do not describe one."""
        match self.state:
            case (_, tuple(shape), PickledDtype(code="u1" | "uint8"), fortran_order, bytes() | str() as raw):
                content = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype=np.uint8)
                sizes = [int(size) for size in shape]
                return content.reshape(sizes, order="F") if fortran_order else content.reshape(sizes)
        raise ValueError("its array is not one of unsigned bytes")


class PickledBuffer(PickledArray):
    """Stands in for the function that rebuilds an array from one contiguous buffer (pickle protocol 5)."""

    def __init__(self, raw: object, dtype: object, shape: object, order: object) -> None:
        self.state = (1, shape, dtype, order == "F", bytes(raw) if isinstance(raw, bytearray) else raw)


class Latin1Bytes(bytes):
    """Stands in for `_codecs.encode`, with which old pickle protocols spell bytes."""

    def __new__(cls, text: str, _encoding: str = "latin1") -> "Latin1Bytes":
        return super().__new__(cls, text.encode("latin1"))


ADMITTED: Mapping[tuple[str, str], Any] = {
    ("_codecs", "encode"): Latin1Bytes,
    ("numpy", "dtype"): PickledDtype,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy.core.numeric", "_frombuffer"): PickledBuffer,
    ("numpy._core.numeric", "_frombuffer"): PickledBuffer,
}


class RefusedGlobalError(Exception):
    """A pickle asked for a name outside the closed table."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows the names of `ADMITTED` and no others."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The stand-in for an admitted name; every other name is refused before it is imported."""
        if (module_name, global_name) not in ADMITTED:
            raise RefusedGlobalError(f"{module_name}.{global_name}")
        return ADMITTED[module_name, global_name]


def load_restricted(path: Path) -> dict[str, Any]:
    """The dictionary pickled in a file, its keys as text; nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            content = RestrictedUnpickler(file, encoding="latin1").load()
    except RefusedGlobalError as error:
        raise FedadeError(
            f"{path} is not a CIFAR batch: its pickle asks for {one_line(error)}, which is refused "
            "and was not run; replace it with the published file"
        ) from error
    except OSError as error:
        raise FedadeError(f"{path} cannot be read: {error.strerror}") from error
    # A damaged or hostile pickle can fail in any of its opcodes.
    except Exception as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise damaged(path, f"it holds a {type(content).__name__}, not a dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}


def corruption_files(folder: Path) -> list[Path]:
    return [path for name in PUBLISHED if (path := folder / f"{name}.npy").is_file()]


def read_corruption(folder: Path, corruption: str, severity: int) -> NDArray[np.uint8] | None:
    """Images `[N, height, width, 3]` of one severity, memory-mapped; None where the folder lacks them."""
    if corruption not in PUBLISHED:
        raise FedadeError(f"unknown corruption {corruption!r}; choose from {', '.join(PUBLISHED)}")
    if severity not in range(1, MAX_SEVERITY + 1):
        raise FedadeError(f"severity {severity} does not exist; choose from 1 to {MAX_SEVERITY}")
    path = folder / f"{corruption}.npy"
    if not path.is_file():
        return None
    images = load_array(path)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) % MAX_SEVERITY:
        raise FedadeError(
            f"{path} holds {images.dtype} of shape {list(images.shape)}; "
            f"expected uint8 [{MAX_SEVERITY} severities x N, height, width, 3]"
        )
    per_severity = len(images) // MAX_SEVERITY
    return cast("NDArray[np.uint8]", images[(severity - 1) * per_severity : severity * per_severity])


def read_corrupted_labels(folder: Path) -> NDArray[np.generic] | None:
    """Labels of the images of one severity; None where the folder has no `labels.npy`."""
    path = folder / "labels.npy"
    if not path.is_file():
        return None
    labels = load_array(path)
    return labels[: len(labels) // MAX_SEVERITY]


def load_array(path: Path) -> NDArray[np.generic]:
    """The array in a `.npy` file, memory-mapped; files that would need unpickling are refused."""
    try:
        with storage.reading_arrays():
            array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise unreadable_array(path, "values", error) from error
    return array
