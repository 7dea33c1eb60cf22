"""What is on disk, in plain values for people and programs: `fedade data list` and `fedade data check`."""

from pathlib import Path
from typing import Any

from fedade.core.errors import FedadeError
from fedade.data.checksums import verdict
from fedade.data.corruptions import PUBLISHED
from fedade.data.locate import Found
from fedade.data.readers import cifar_c, trex
from fedade.data.registry import (
    DATASETS,
    best_copy,
    corruptions_folder,
    load,
    load_texts,
    missing_images,
    texts_folder,
)
from fedade.data.specs import BundledSpec, CorruptedSpec, DatasetSpec, TextSpec


def describe(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """One entry per known dataset: `name`, `classes`, `examples`, `status`, `where` and `remark`.

    The status is `found`, `partial`, `missing` or `damaged`; no image is decoded to find out.
    Examples are the images of the whole dataset, or its facts.
    """
    return [{"name": name, **_entry(name, data_dir)} for name in DATASETS]


def check(name: str, data_dir: Path | None = None) -> dict[str, Any]:
    """Counts of a dataset after decoding it whole, and what checksums say about each of its files.

    A file is `verified`, `altered`, or `unknown` when no checksum of it is published.
    """
    spec = DATASETS.get(name)
    if isinstance(spec, TextSpec):
        return _check_texts(name, spec, data_dir)
    dataset = load(name, data_dir)
    clean = DATASETS[spec.clean] if isinstance(spec, CorruptedSpec) else spec
    copy = best_copy(clean, data_dir) if isinstance(clean, DatasetSpec) else None
    files = _verdicts(clean, copy) if isinstance(clean, DatasetSpec) and copy else {}
    return {
        "name": name,
        "where": str(copy.folder) if copy else None,
        "classes": dataset.num_classes,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "input_shape": list(dataset.input_shape),
        "partial": dataset.partial,
        "files": files,
        "verified": bool(files) and set(files.values()) == {"verified"},
        "corruptions": _readable_corruptions(spec, data_dir) if isinstance(spec, CorruptedSpec) else [],
    }


def _check_texts(name: str, spec: TextSpec, data_dir: Path | None) -> dict[str, Any]:
    dataset, folder = load_texts(name, data_dir), texts_folder(spec, data_dir)
    return {
        "name": name,
        "where": str(folder),
        "classes": dataset.num_classes,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "input_shape": [],
        "partial": dataset.partial,
        "files": {path.name: "unknown" for path in trex.files(folder)} if folder else {},
        "verified": False,
        "corruptions": [],
    }


def _verdicts(spec: DatasetSpec, copy: Found) -> dict[str, str]:
    """What checksums say about the copy's files; images that lie singly have no published checksums."""
    files = copy.reader.files(copy.folder)
    known = [path for path in files if path.name in spec.published or path.suffix != ".JPEG"]
    return {path.name: verdict(path, spec.published) for path in known}


def _readable_corruptions(spec: CorruptedSpec, data_dir: Path | None) -> list[str]:
    folder = corruptions_folder(spec, data_dir)
    if folder is None:
        return []
    return [
        corruption for corruption in PUBLISHED if cifar_c.read_corruption(folder, corruption, severity=1) is not None
    ]


def _entry(name: str, data_dir: Path | None) -> dict[str, Any]:
    match DATASETS[name]:
        case BundledSpec() as spec:
            dataset = spec.load()
            images = len(dataset.train) + len(dataset.test)
            return _row(dataset.num_classes, images, "found", None, spec.origin)
        case CorruptedSpec(clean=clean) as spec:
            folder = corruptions_folder(spec, data_dir)
            present, total = len(cifar_c.files(folder)) if folder else 0, len(PUBLISHED)
            remark = f"{present} of {total} published corruptions on disk; the others are generated"
            return {**_entry(clean, data_dir), "remark": remark}
        case DatasetSpec() as spec:
            images = spec.train_images + spec.test_images
            return _row(spec.num_classes, images, *_status(spec, best_copy(spec, data_dir)))
        case TextSpec() as spec:
            return _row(spec.num_classes, spec.facts, *_status_of_texts(name, spec, data_dir))


def _row(classes: int, examples: int, status: str, where: Path | None, remark: str | None) -> dict[str, Any]:
    return {
        "classes": classes,
        "examples": examples,
        "status": status,
        "where": str(where) if where else None,
        "remark": remark,
    }


def _status(spec: DatasetSpec, copy: Found | None) -> tuple[str, Path | None, str | None]:
    if copy is None:
        return "missing", None, None
    try:
        reading = copy.reader.read(copy.folder)
    except FedadeError as error:
        return "damaged", copy.folder, str(error)
    lacking = missing_images(spec, len(reading.train.labels), len(reading.test.labels))
    return ("partial" if lacking else "found"), copy.folder, lacking


def _status_of_texts(name: str, spec: TextSpec, data_dir: Path | None) -> tuple[str, Path | None, str | None]:
    folder = texts_folder(spec, data_dir)
    if folder is None:
        return "missing", None, None
    try:
        lacking = load_texts(name, data_dir).partial
    except FedadeError as error:
        return "damaged", folder, str(error)
    return ("partial" if lacking else "found"), folder, lacking
