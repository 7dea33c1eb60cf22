"""Datasets by name: found on disk or downloaded, checked, decoded once, handed out as arrays, and described."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule, import_attribute
from fedade.data.cache import decoded
from fedade.data.corruptions.registry import PUBLISHED
from fedade.data.dataset import Dataset, TextDataset, TextInput
from fedade.data.download import DownloadProgress
from fedade.data.known.cifar import CIFAR10, CIFAR10_C, CIFAR100, CIFAR100_C
from fedade.data.known.digits import DIGITS
from fedade.data.known.lama import LAMA_TREX
from fedade.data.known.tiny_imagenet import TINY_IMAGENET
from fedade.data.locate import default_data_dir
from fedade.data.readers.arrays import read_arrays
from fedade.data.readers.cifar import read_corruption
from fedade.data.readers.images import ImageFolder
from fedade.data.specs import CorruptedSpec, Spec, TextSpec

torch_dataset: Any = OptionalModule("fedade.data.torch_dataset")  # PyTorch, which other data do without
DATASETS: Mapping[str, Spec] = {
    spec.name: spec for spec in (DIGITS, CIFAR10, CIFAR100, TINY_IMAGENET, CIFAR10_C, CIFAR100_C, LAMA_TREX)
}


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """A dataset by its name in `DATASETS`, or the user's own.

    The user's own data are named `folder:PATH` (images in one sub-folder per class; `?size=PIXELS` resizes
    them), `arrays:PATH` (numpy files) or `torch:package.module:attribute` (a PyTorch dataset, a pair of a
    training and a test dataset, or a function that returns either).
    """
    kind, _, rest = name.partition(":")
    return OWN_DATA[kind](name, rest) if is_own(name) else spec_of(name).load(data_dir)


def load_texts(name: str, data_dir: Path | None = None, form: TextInput = "evidence") -> TextDataset:
    """A dataset of texts by its name, put into words as asked."""
    spec = None if is_own(name) else spec_of(name)
    if not isinstance(spec, TextSpec):
        known = ", ".join(known for known, spec in DATASETS.items() if isinstance(spec, TextSpec))
        raise FedadeError(f"dataset {name!r} holds images, not texts; choose {known}, or a model that reads images")
    return spec.load_texts(data_dir, form)


def spec_of(name: str) -> Spec:
    """What is known about a dataset; an unknown name is an error that lists the known ones."""
    if name not in DATASETS:
        raise FedadeError(
            f"unknown dataset {name!r}; choose from {', '.join(DATASETS)}, folder:PATH, arrays:PATH or {_TORCH_FORM}"
        )
    return DATASETS[name]


def official_corruption(name: str, data_dir: Path | None, corruption: str, severity: int) -> NDArray[np.uint8] | None:
    """Published images `[N, height, width, 3]` of one corruption and severity; None if there are none on disk."""
    spec = spec_of(name)
    if not isinstance(spec, CorruptedSpec):
        raise FedadeError(f"dataset {name!r} has no corruptions; choose cifar10-c or cifar100-c")
    folder = spec.corruptions_folder(data_dir)
    return read_corruption(folder, corruption, severity) if folder and corruption in PUBLISHED else None


def where(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder a dataset would be read from; None when it is not on disk."""
    return spec_of(name).where(data_dir)


def fetch(name: str, data_dir: Path | None = None, progress: DownloadProgress | None = None) -> Path | None:
    """Download a dataset unless a complete copy is on disk; returns its folder, None if it is installed."""
    target = data_dir or default_data_dir()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedadeError(f"data folder {target} cannot be created: {error.strerror}; name another") from error
    return spec_of(name).fetch(data_dir, target, progress)


def is_own(name: str) -> bool:
    kind, colon, _ = name.partition(":")
    return bool(colon) and kind in OWN_DATA


def _own_folder(name: str, location: str) -> Dataset:
    path, question, option = location.partition("?")
    key, _, value = option.partition("=")
    if question and (key != "size" or not value.isdigit() or int(value) == 0):
        raise FedadeError(f"{name}: unknown option {option!r}; the one option is ?size=PIXELS")
    folder, reader = Path(path).expanduser(), ImageFolder(int(value) if question else None)
    dataset = decoded("folder", reader.files(folder), repr(reader), lambda: reader.read(folder))
    return replace(dataset, name=name, one_part=reader.has_one_part(folder))


_TORCH_FORM = "torch:package.module:attribute"
OWN_DATA: Mapping[str, Callable[[str, str], Dataset]] = {
    "folder": _own_folder,
    "arrays": lambda name, location: read_arrays(Path(location).expanduser(), name),
    "torch": lambda name, location: torch_dataset.from_named(import_attribute(location, name, _TORCH_FORM), name),
}
"""How the user's own data are named, before the colon."""


def describe(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """One entry per known dataset: `name`, `classes`, `examples`, `status`, `where` and `remark`. The status is
    `found`, `partial`, `missing` or `damaged`; no image is decoded to find out. Examples are the images of the whole
    dataset, or its facts."""
    return [{"name": name, **spec.entry(data_dir)} for name, spec in DATASETS.items()]


def check(name: str, data_dir: Path | None = None) -> dict[str, Any]:
    """Counts of a dataset after decoding it whole, and what checksums say about each of its files. A file is
    `verified`, `altered`, or `unknown` when no checksum of it is published."""
    spec = DATASETS.get(name)
    dataset = load_texts(name, data_dir) if isinstance(spec, TextSpec) else load(name, data_dir)
    clean = spec.clean if isinstance(spec, CorruptedSpec) else spec
    folder = clean.where(data_dir) if clean else None
    files = clean.verdicts(data_dir) if clean else {}
    arrays = spec.corruptions_folder(data_dir) if isinstance(spec, CorruptedSpec) else None
    return {
        "name": name,
        "where": str(folder) if folder else None,
        "classes": dataset.num_classes,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "input_shape": list(dataset.input_shape) if isinstance(dataset, Dataset) else [],
        "partial": dataset.partial,
        "files": files,
        "verified": bool(files) and set(files.values()) == {"verified"},
        "corruptions": [name for name in PUBLISHED if arrays and read_corruption(arrays, name, severity=1) is not None],
    }
