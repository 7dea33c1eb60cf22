"""Datasets by name: found on disk or downloaded, checked, decoded once, and handed out as arrays."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchDataset

from fedade.core.errors import FedadeError
from fedade.data.cache import decoded
from fedade.data.checksums import refuse_altered
from fedade.data.corruptions import PUBLISHED
from fedade.data.dataset import Dataset
from fedade.data.download import Archive, Progress, UnreachableError, download
from fedade.data.lama import lama_trex
from fedade.data.locate import DATA_VARIABLE, Found, default_data_dir, find, search_path, subfolders
from fedade.data.readers import cifar_c, trex
from fedade.data.readers.arrays import read_arrays
from fedade.data.readers.folders import ImageFolder
from fedade.data.readers.images import Reading
from fedade.data.specs import DATASETS, BundledSpec, CorruptedSpec, DatasetSpec, Spec, TextSpec
from fedade.data.texts import TextDataset, TextInput
from fedade.data.torch_dataset import from_torch

__all__ = [
    "DATASETS",
    "best_copy",
    "corruptions_folder",
    "fetch",
    "is_complete",
    "load",
    "load_texts",
    "missing_images",
    "official_corruption",
    "spec_of",
    "texts_folder",
    "where",
]


def load(
    name: str, data_dir: Path | None = None, *, fetch_missing: bool = False, progress: Progress | None = None
) -> Dataset:
    """A dataset by its name in `DATASETS`, or the user's own.

    The user's own data are named `folder:PATH` (images in one sub-folder per class; `?size=PIXELS` resizes
    them), `arrays:PATH` (numpy files) or `torch:package.module:attribute` (a PyTorch dataset, a pair of a
    training and a test dataset, or a function that returns either).
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in OWN_DATA:
        return OWN_DATA[kind](name, rest)
    match spec_of(name):
        case BundledSpec(load=bundled):
            return bundled()
        case CorruptedSpec(clean=clean) as spec:
            dataset = load(clean, data_dir, fetch_missing=fetch_missing, progress=progress)
            _require_same_labels(dataset, corruptions_folder(spec, data_dir))
            return replace(dataset, name=name)
        case DatasetSpec() as spec:
            found = best_copy(spec, data_dir)
            if found is None and fetch_missing:
                fetch(name, data_dir, progress)
                found = best_copy(spec, data_dir)
            if found is None:
                raise FedadeError(
                    f"no copy of {name} in {_places(data_dir)}; run `fedade data fetch {name}`, or {_supply(spec)}"
                )
            return _load_copy(name, spec, found)
        case TextSpec():
            raise FedadeError(
                f"dataset {name!r} holds texts, not images; choose a model that reads texts, or another dataset"
            )


def load_texts(name: str, data_dir: Path | None = None, form: TextInput = "evidence") -> TextDataset:
    """A dataset of texts by its name, put into words as asked."""
    kind, colon, _ = name.partition(":")
    spec = None if colon and kind in OWN_DATA else spec_of(name)
    if not isinstance(spec, TextSpec):
        known = ", ".join(known for known, spec in DATASETS.items() if isinstance(spec, TextSpec))
        raise FedadeError(f"dataset {name!r} holds images, not texts; choose {known}, or a model that reads images")
    folder = texts_folder(spec, data_dir)
    if folder is None:
        raise _no_texts(name, spec, data_dir)
    return lama_trex(trex.read(folder), form)


def spec_of(name: str) -> Spec:
    """What is known about a dataset; an unknown name is an error that lists the known ones."""
    if name not in DATASETS:
        raise FedadeError(
            f"unknown dataset {name!r}; choose from {', '.join(DATASETS)}, "
            "folder:PATH, arrays:PATH or torch:package.module:attribute"
        )
    return DATASETS[name]


def official_corruption(name: str, data_dir: Path | None, corruption: str, severity: int) -> NDArray[np.uint8] | None:
    """Published images `[N, height, width, 3]` of one corruption and severity; None if there are none on disk."""
    spec = spec_of(name)
    if not isinstance(spec, CorruptedSpec):
        raise FedadeError(f"dataset {name!r} has no corruptions; choose cifar10-c or cifar100-c")
    folder = corruptions_folder(spec, data_dir)
    return cifar_c.read_corruption(folder, corruption, severity) if folder and corruption in PUBLISHED else None


def corruptions_folder(spec: CorruptedSpec, data_dir: Path | None = None) -> Path | None:
    """The folder of published corruptions, where there is one."""
    candidates = (folder for root in search_path(data_dir) for folder in subfolders(root, spec.folders))
    return next(filter(cifar_c.recognises, candidates), None)


def texts_folder(spec: TextSpec, data_dir: Path | None = None) -> Path | None:
    """The folder of a dataset of texts, where there is one."""
    candidates = (folder for root in search_path(data_dir) for folder in subfolders(root, spec.folders))
    return next(filter(trex.recognises, candidates), None)


def where(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder a dataset would be read from; None when it is not on disk."""
    match spec_of(name):
        case BundledSpec():
            return None
        case CorruptedSpec(clean=clean) as spec:
            return corruptions_folder(spec, data_dir) or where(clean, data_dir)
        case DatasetSpec() as spec:
            found = best_copy(spec, data_dir)
            return found.folder if found else None
        case TextSpec() as spec:
            return texts_folder(spec, data_dir)


def fetch(name: str, data_dir: Path | None = None, progress: Progress | None = None) -> Path | None:
    """Download a dataset unless a complete copy is on disk; returns its folder, None if it is installed."""
    target = data_dir or default_data_dir()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedadeError(f"data folder {target} cannot be created: {error.strerror}; name another") from error
    match spec_of(name):
        case BundledSpec():
            return None
        case CorruptedSpec(clean=clean) as spec:
            fetch(clean, data_dir, progress)
            folder = corruptions_folder(spec, data_dir)
            if folder is not None and len(cifar_c.files(folder)) == len(PUBLISHED):
                return folder
            return _fetch_archive(name, spec.archive, target, progress)
        case DatasetSpec() as spec:
            found = best_copy(spec, data_dir)
            if found is not None and is_complete(spec, found):
                return found.folder
            # Beside a partial copy, so that the search meets both and prefers the complete one.
            beside = found.root if found and data_dir is None else target
            return _fetch_archive(name, spec.archive, beside, progress)
        case TextSpec() as spec:
            folder = texts_folder(spec, data_dir)
            if folder is None:
                raise _no_texts(name, spec, data_dir)
            return folder


def best_copy(spec: DatasetSpec, data_dir: Path | None = None) -> Found | None:
    """The copy to read: in the first data folder that has any, a complete one if there is one."""
    copies = find(spec.layouts, data_dir)
    if len(copies) < 2:
        return copies[0] if copies else None
    return next((copy for copy in copies if is_complete(spec, copy)), copies[0])


def is_complete(spec: DatasetSpec, copy: Found) -> bool:
    """Whether a copy can be read and lacks no image."""
    try:
        reading = copy.reader.read(copy.folder)
    except FedadeError:
        return False
    return missing_images(spec, len(reading.train.labels), len(reading.test.labels)) is None


def missing_images(spec: DatasetSpec, train_images: int, test_images: int) -> str | None:
    """What a copy lacks, such as "30,000 of 50,000 training images"; None when it is whole."""
    lacking = [
        f"{present:,} of {expected:,} {part} images"
        for part, present, expected in (
            ("training", train_images, spec.train_images),
            ("test", test_images, spec.test_images),
        )
        if present < expected
    ]
    return ", ".join(lacking) or None


def _load_copy(name: str, spec: DatasetSpec, copy: Found) -> Dataset:
    files = copy.reader.files(copy.folder)

    def read() -> Reading:
        for path in files:
            refuse_altered(path, spec.published)
        reading = copy.reader.read(copy.folder)
        _refuse_surplus(reading, spec)
        return reading

    dataset = decoded(name, files, repr(copy.reader), read)
    return replace(dataset, partial=missing_images(spec, len(dataset.train), len(dataset.test)))


def _refuse_surplus(reading: Reading, spec: DatasetSpec) -> None:
    for part, present, expected in (
        ("training", len(reading.train.labels), spec.train_images),
        ("test", len(reading.test.labels), spec.test_images),
    ):
        if present > expected:
            raise FedadeError(
                f"{reading.source} holds {present:,} {part} images, the dataset has {expected:,}; "
                "remove files that belong to another copy"
            )


def _require_same_labels(dataset: Dataset, folder: Path | None) -> None:
    labels = cifar_c.read_labels(folder) if folder else None
    if labels is not None and not np.array_equal(labels, dataset.test.labels):
        raise FedadeError(
            f"{folder}/labels.npy differs from the labels of the clean test images; "
            "use the arrays that belong to this dataset"
        )


def _fetch_archive(name: str, archive: Archive, target: Path, progress: Progress | None) -> Path:
    try:
        return download(archive, target, progress)
    except UnreachableError as error:
        raise FedadeError(
            f"no complete copy of {name} in {_places(target)}, and {error}; download it elsewhere and unpack "
            f"{archive.folder}/ into {target}, or name a folder that has it (--data-dir or {DATA_VARIABLE})"
        ) from error


def _no_texts(name: str, spec: TextSpec, data_dir: Path | None) -> FedadeError:
    return FedadeError(
        f"no copy of {name} in {_places(data_dir)}, and it is not fetched, because no checksum of it is published; "
        f"unpack {spec.url} so that {spec.holds} lie in one of these folders, "
        f"or name another with --data-dir or {DATA_VARIABLE}"
    )


def _places(data_dir: Path | None) -> str:
    return ", ".join(map(str, search_path(data_dir)))


def _supply(spec: DatasetSpec) -> str:
    layouts = " or ".join(layout.holds for layout in spec.layouts)
    return f"put {layouts} into one of these folders, or name another with --data-dir or {DATA_VARIABLE}"


def _own_folder(name: str, location: str) -> Dataset:
    path, question, option = location.partition("?")
    key, _, value = option.partition("=")
    if question and (key != "size" or not value.isdigit() or int(value) == 0):
        raise FedadeError(f"{name}: unknown option {option!r}; the one option is ?size=PIXELS")
    folder, reader = Path(path).expanduser(), ImageFolder(int(value) if question else None)
    dataset = decoded("folder", reader.files(folder), repr(reader), lambda: reader.read(folder))
    return replace(dataset, name=name)


def _own_arrays(name: str, location: str) -> Dataset:
    return read_arrays(Path(location).expanduser(), name)


def _own_torch(name: str, location: str) -> Dataset:
    module_name, _, attribute = location.partition(":")
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise FedadeError(f"{name} cannot be imported ({error}); expected torch:package.module:attribute") from error
    if callable(value) and not isinstance(value, TorchDataset):
        value = value()
    train, test = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    return from_torch(train, test, name)


OWN_DATA: Mapping[str, Callable[[str, str], Dataset]] = {
    "folder": _own_folder,
    "arrays": _own_arrays,
    "torch": _own_torch,
}
"""How the user's own data are named, before the colon."""
