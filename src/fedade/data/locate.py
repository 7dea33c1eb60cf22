"""Finds datasets on disk: which folders are searched, and under which layouts."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from fedade.core.errors import FedadeError
from fedade.core.paths import cache_dir
from fedade.data.readers.images import ImageReading

DATA_VARIABLE = "FEDADE_DATA"


class Reader(Protocol):
    """Reads one layout of one dataset."""

    def recognises(self, folder: Path) -> bool:
        """Whether the folder holds the dataset in this layout, whole or in part."""

    def files(self, folder: Path) -> list[Path]:
        """The files that the reading depends on."""

    def read(self, folder: Path) -> ImageReading:
        """The dataset in the folder."""


class DiskLayout(NamedTuple):
    """One way in which a dataset is known to lie on disk."""

    folders: tuple[str, ...]
    """Where it may lie below a data folder, as patterns; the likeliest first."""
    holds: str
    """What such a folder holds, in words for a message."""
    reader: Reader


class Copy(NamedTuple):
    """A folder that holds a dataset, the data folder it lies in, and the reader that understands it."""

    root: Path
    folder: Path
    reader: Reader


def default_data_dir() -> Path:
    """Where downloads go unless the user names a folder: `FEDADE_DATA`, or else the user's cache."""
    return _from_environment() or cache_dir() / "datasets"


def search_path(data_dir: Path | None = None) -> tuple[Path, ...]:
    """The data folders in the order they are searched, each once."""
    if data_dir is not None and not data_dir.is_dir():
        raise FedadeError(f"data folder {data_dir} does not exist; create it or name another")
    candidates = (data_dir, _from_environment(), Path.cwd() / "data", cache_dir() / "datasets")
    return tuple(dict.fromkeys(root for root in candidates if root is not None))


def find(layouts: Iterable[DiskLayout], data_dir: Path | None = None) -> list[Copy]:
    """The copies of a dataset in the first data folder that has any, in the order of its layouts."""
    known = tuple(layouts)
    for root in search_path(data_dir):
        copies = [
            Copy(root, folder, layout.reader)
            for layout in known
            for folder in subfolders(root, layout.folders)
            if layout.reader.recognises(folder)
        ]
        if copies:
            return copies
    return []


def subfolders(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """The folders below a data folder that match the patterns, pattern by pattern."""
    for pattern in patterns:
        yield from sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]


def _from_environment() -> Path | None:
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None
