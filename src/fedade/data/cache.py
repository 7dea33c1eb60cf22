"""Decoded images, kept once on disk as memory-mapped arrays.

An entry is a folder that appears whole or not at all: it is built under another name and renamed. Its
manifest records the size and time of every array, so an entry that anything has touched since is rebuilt.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.paths import cache_dir
from fedade.data.dataset import Dataset, Labelled
from fedade.data.readers.images import ImageReading, Undecoded

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PARTS = ("train", "test")


def cache_root() -> Path:
    return cache_dir() / "decoded"


def decoded(name: str, files: Iterable[Path], options: str, read: Callable[[], ImageReading]) -> Dataset:
    """The dataset whose images lie in the given files, decoded now or at an earlier time. `options` is whatever else
    changes the pixels; `read` is called only when there is no sound entry."""
    called = re.sub(r"[^\w-]", "-", name)
    entry = cache_root() / f"{called}-{fingerprint(files, options)}"
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):
            if not is_sound(entry):
                _build(entry, read())
            return _load(entry, name)
    except OSError as error:
        raise FedadeError(
            f"the cache of decoded images {entry.parent} cannot be written ({error}); "
            "free some space or point FEDADE_CACHE to a folder that can be written"
        ) from error


def fingerprint(files: Iterable[Path], options: str) -> str:
    """A short digest of the files' names, sizes and times, of the options and of this cache's format."""
    hasher = hashlib.sha256(f"{FORMAT_VERSION}\0{options}\0".encode())
    for path in files:
        status = path.stat()
        hasher.update(f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return hasher.hexdigest()[:16]


def is_sound(entry: Path) -> bool:
    """Whether an entry is there and every array in it is as it was when it was written."""
    try:
        recorded = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))["arrays"]
        return bool(recorded == _array_stamps(entry))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _build(entry: Path, reading: ImageReading) -> None:
    building = entry.with_name(f".building-{entry.name}")
    shutil.rmtree(building, ignore_errors=True)
    shutil.rmtree(entry, ignore_errors=True)
    building.mkdir()
    try:
        for part, undecoded in zip(PARTS, (reading.train, reading.test), strict=True):
            _write(building, part, undecoded)
        manifest = {"class_names": reading.class_names, "arrays": _array_stamps(building)}
        (building / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        os.replace(building, entry)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write(folder: Path, part: str, undecoded: Undecoded) -> None:
    path, shape = folder / f"{part}_images.npy", (len(undecoded.labels), *undecoded.shape)
    images = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    storage.reserve(path, path.stat().st_size)
    undecoded.decode(images)
    images.flush()
    np.save(folder / f"{part}_labels.npy", undecoded.labels)


def _load(entry: Path, name: str) -> Dataset:
    class_names = tuple(json.loads((entry / MANIFEST).read_text(encoding="utf-8"))["class_names"])
    images = [np.load(entry / f"{part}_images.npy", mmap_mode="r", allow_pickle=False) for part in PARTS]
    labels = [np.load(entry / f"{part}_labels.npy", allow_pickle=False) for part in PARTS]
    train, test = map(Labelled, images, labels)
    return Dataset(name, class_names, train, test)


def _array_stamps(entry: Path) -> dict[str, list[int]]:
    paths = [entry / f"{part}_{kind}.npy" for part in PARTS for kind in ("images", "labels")]
    return {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
