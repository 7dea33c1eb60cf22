"""Kinds of dataset, one of which each module of `fedade.data.known` makes: found on disk, read, fetched, described."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedade.core.errors import FedadeError
from fedade.data import download
from fedade.data.cache import decoded
from fedade.data.corruptions.registry import PUBLISHED
from fedade.data.dataset import Dataset, TextDataset, TextInput
from fedade.data.locate import DATA_VARIABLE, Copy, DiskLayout, find, search_path, subfolders
from fedade.data.readers.cifar import corruption_files, read_corrupted_labels
from fedade.data.readers.images import ImageReading


class Spec(ABC):
    """What is known about a dataset."""

    name: str

    @abstractmethod
    def load(self, data_dir: Path | None) -> Dataset:
        """All of it, or an error that says where it was looked for."""

    def where(self, data_dir: Path | None) -> Path | None:
        """The folder that it is read from; None when it is not on disk, or installed."""
        return None

    def fetch(self, data_dir: Path | None, target: Path, progress: download.DownloadProgress | None) -> Path | None:
        """Download it to a folder unless a complete copy is on disk; returns its folder."""
        return None

    @abstractmethod
    def entry(self, data_dir: Path | None) -> dict[str, Any]:
        """`classes`, `examples`, `status`, `where` and `remark`; no image is decoded to find out."""

    def verdicts(self, data_dir: Path | None) -> dict[str, str]:
        """What checksums say about each of its files."""
        return {}


@dataclass(frozen=True)
class BundledSpec(Spec):
    """A dataset that is installed with the package."""

    name: str
    num_classes: int
    images: int
    make: Callable[[], Dataset]
    origin: str

    def load(self, data_dir: Path | None) -> Dataset:
        return self.make()

    def entry(self, data_dir: Path | None) -> dict[str, Any]:
        return _entry(self.num_classes, self.images, "found", None, self.origin)


@dataclass(frozen=True)
class ImageSpec(Spec):
    """A dataset of images on disk: its true size, the layouts it is read from, its public archive and checksums."""

    name: str
    num_classes: int
    train_images: int
    test_images: int
    layouts: tuple[DiskLayout, ...]
    archive: download.Archive
    published: Mapping[str, download.PublishedFile]

    def load(self, data_dir: Path | None) -> Dataset:
        copy = self.best_copy(data_dir)
        if copy is None:
            layouts = " or ".join(layout.holds for layout in self.layouts)
            raise FedadeError(
                f"no copy of {self.name} in {_places(data_dir)}; run `fedade data fetch {self.name}`, or put {layouts} "
                f"into one of these folders, or name another with --data-dir or {DATA_VARIABLE}"
            )
        files = copy.reader.files(copy.folder)

        def read() -> ImageReading:
            for path in files:
                download.refuse_altered(path, self.published)
            reading = copy.reader.read(copy.folder)
            for part, present, expected in self._counts(len(reading.train.labels), len(reading.test.labels)):
                if present > expected:
                    raise FedadeError(
                        f"{reading.source} holds {present:,} {part} images, the dataset has {expected:,}; "
                        "remove files that belong to another copy"
                    )
            return reading

        dataset = decoded(self.name, files, repr(copy.reader), read)
        return replace(dataset, partial=self.missing_images(len(dataset.train), len(dataset.test)))

    def where(self, data_dir: Path | None) -> Path | None:
        copy = self.best_copy(data_dir)
        return copy.folder if copy else None

    def fetch(self, data_dir: Path | None, target: Path, progress: download.DownloadProgress | None) -> Path | None:
        copy = self.best_copy(data_dir)
        if copy is not None and self._is_complete(copy):
            return copy.folder
        # In the folder of a partial copy, so that the search meets both and prefers the complete one.
        return _fetched(self.name, self.archive, copy.root if copy and data_dir is None else target, progress)

    def entry(self, data_dir: Path | None) -> dict[str, Any]:
        copy, images = self.best_copy(data_dir), self.train_images + self.test_images
        if copy is None:
            return _entry(self.num_classes, images, "missing", None, None)
        return _entry(self.num_classes, images, *_status(copy.folder, lambda: self._lacking(copy)))

    def verdicts(self, data_dir: Path | None) -> dict[str, str]:
        """Images that lie singly have no published checksums and are left out."""
        copy = self.best_copy(data_dir)
        files = copy.reader.files(copy.folder) if copy else []
        known = [path for path in files if path.name in self.published or path.suffix != ".JPEG"]
        return {path.name: download.verdict(path, self.published) for path in known}

    def best_copy(self, data_dir: Path | None) -> Copy | None:
        """The copy to read: in the first data folder that has any, a complete one if there is one."""
        copies = find(self.layouts, data_dir)
        if len(copies) < 2:
            return copies[0] if copies else None
        return next(filter(self._is_complete, copies), copies[0])

    def missing_images(self, train_images: int, test_images: int) -> str | None:
        """What a copy lacks, such as "30,000 of 50,000 training images"; None when it is whole."""
        counts = self._counts(train_images, test_images)
        lacking = [f"{there:,} of {of:,} {part} images" for part, there, of in counts if there < of]
        return ", ".join(lacking) or None

    def _is_complete(self, copy: Copy) -> bool:
        try:
            return self._lacking(copy) is None
        except FedadeError:
            return False

    def _lacking(self, copy: Copy) -> str | None:
        reading = copy.reader.read(copy.folder)
        return self.missing_images(len(reading.train.labels), len(reading.test.labels))

    def _counts(self, train_images: int, test_images: int) -> tuple[tuple[str, int, int], ...]:
        return ("training", train_images, self.train_images), ("test", test_images, self.test_images)


@dataclass(frozen=True)
class CorruptedSpec(Spec):
    """A covariate benchmark: a clean dataset, and where the arrays of its corrupted test images may lie. Corruptions
    that are not on disk are generated."""

    name: str
    clean: ImageSpec
    folders: tuple[str, ...]
    archive: download.Archive

    def load(self, data_dir: Path | None) -> Dataset:
        dataset, folder = self.clean.load(data_dir), self.corruptions_folder(data_dir)
        labels = read_corrupted_labels(folder) if folder else None
        if labels is not None and not np.array_equal(labels, dataset.test.labels):
            raise FedadeError(
                f"{folder}/labels.npy differs from the labels of the clean test images; "
                "use the arrays that belong to this dataset"
            )
        return replace(dataset, name=self.name)

    def where(self, data_dir: Path | None) -> Path | None:
        return self.corruptions_folder(data_dir) or self.clean.where(data_dir)

    def fetch(self, data_dir: Path | None, target: Path, progress: download.DownloadProgress | None) -> Path | None:
        self.clean.fetch(data_dir, target, progress)
        folder = self.corruptions_folder(data_dir)
        if folder is not None and len(corruption_files(folder)) == len(PUBLISHED):
            return folder
        return _fetched(self.name, self.archive, target, progress)

    def entry(self, data_dir: Path | None) -> dict[str, Any]:
        folder = self.corruptions_folder(data_dir)
        present = len(corruption_files(folder)) if folder else 0
        remark = f"{present} of {len(PUBLISHED)} published corruptions on disk; the others are generated"
        return {**self.clean.entry(data_dir), "remark": remark}

    def verdicts(self, data_dir: Path | None) -> dict[str, str]:
        return self.clean.verdicts(data_dir)

    def corruptions_folder(self, data_dir: Path | None) -> Path | None:
        return _first(self.folders, data_dir, corruption_files)


@dataclass(frozen=True)
class TextSpec(Spec):
    """A dataset of texts: its true size in facts, where it may lie, and where it is published. It is not fetched by the
    package: the authors publish no checksum to hold a download against."""

    name: str
    num_classes: int
    facts: int
    folders: tuple[str, ...]
    holds: str
    """What such a folder holds, in words for a message."""
    url: str
    recognises: Callable[[Path], bool]
    files: Callable[[Path], list[Path]]
    """The files in a folder that the reading depends on."""
    read: Callable[[Path, TextInput], TextDataset]
    """The texts of a folder, put into words as asked."""

    def load(self, data_dir: Path | None) -> Dataset:
        raise FedadeError(
            f"dataset {self.name!r} holds texts, not images; choose a model that reads texts, or another dataset"
        )

    def load_texts(self, data_dir: Path | None, form: TextInput = "evidence") -> TextDataset:
        return self.read(self._folder(data_dir), form)

    def where(self, data_dir: Path | None) -> Path | None:
        return _first(self.folders, data_dir, self.recognises)

    def fetch(self, data_dir: Path | None, target: Path, progress: download.DownloadProgress | None) -> Path | None:
        return self._folder(data_dir)

    def entry(self, data_dir: Path | None) -> dict[str, Any]:
        folder = self.where(data_dir)
        if folder is None:
            return _entry(self.num_classes, self.facts, "missing", None, None)
        return _entry(self.num_classes, self.facts, *_status(folder, lambda: self.load_texts(data_dir).partial))

    def verdicts(self, data_dir: Path | None) -> dict[str, str]:
        folder = self.where(data_dir)
        return {path.name: "unknown" for path in self.files(folder)} if folder else {}

    def _folder(self, data_dir: Path | None) -> Path:
        folder = self.where(data_dir)
        if folder is None:
            raise FedadeError(
                f"no copy of {self.name} in {_places(data_dir)}, and it is not fetched, because no checksum of it is "
                f"published; unpack {self.url} so that {self.holds} lie in one of these folders, "
                f"or name another with --data-dir or {DATA_VARIABLE}"
            )
        return folder


def _first(folders: Iterable[str], data_dir: Path | None, recognises: Callable[[Path], object]) -> Path | None:
    candidates = (folder for root in search_path(data_dir) for folder in subfolders(root, folders))
    return next(filter(recognises, candidates), None)


def _places(data_dir: Path | None) -> str:
    return ", ".join(map(str, search_path(data_dir)))


def _fetched(name: str, archive: download.Archive, target: Path, progress: download.DownloadProgress | None) -> Path:
    try:
        return download.download(archive, target, progress)
    except download.UnreachableError as error:
        raise FedadeError(
            f"no complete copy of {name} in {_places(target)}, and {error}; download it elsewhere and unpack "
            f"{archive.folder}/ into {target}, or name a folder that has it (--data-dir or {DATA_VARIABLE})"
        ) from error


def _status(folder: Path, lacking: Callable[[], str | None]) -> tuple[str, Path, str | None]:
    """Whether a copy is whole, and what it lacks or what is wrong with it."""
    try:
        remark = lacking()
    except FedadeError as error:
        return "damaged", folder, str(error)
    return ("partial" if remark else "found"), folder, remark


def _entry(classes: int, examples: int, status: str, where: Path | None, remark: str | None) -> dict[str, Any]:
    folder = str(where) if where else None
    return {"classes": classes, "examples": examples, "status": status, "where": folder, "remark": remark}
