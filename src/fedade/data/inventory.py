"""What is on disk, in plain values for people and programs: `fedade data list` and `fedade data check`."""

from pathlib import Path
from typing import Any

from fedade.data.corruptions.registry import PUBLISHED
from fedade.data.dataset import Dataset
from fedade.data.readers import cifar_c
from fedade.data.registry import DATASETS, load, load_texts
from fedade.data.specs import CorruptedSpec, TextSpec


def describe(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """One entry per known dataset: `name`, `classes`, `examples`, `status`, `where` and `remark`.

    The status is `found`, `partial`, `missing` or `damaged`; no image is decoded to find out.
    Examples are the images of the whole dataset, or its facts.
    """
    return [{"name": name, **spec.entry(data_dir)} for name, spec in DATASETS.items()]


def check(name: str, data_dir: Path | None = None) -> dict[str, Any]:
    """Counts of a dataset after decoding it whole, and what checksums say about each of its files.

    A file is `verified`, `altered`, or `unknown` when no checksum of it is published.
    """
    spec = DATASETS.get(name)
    dataset = load_texts(name, data_dir) if isinstance(spec, TextSpec) else load(name, data_dir)
    clean = spec.clean if isinstance(spec, CorruptedSpec) else spec
    folder = clean.where(data_dir) if clean else None
    files = clean.verdicts(data_dir) if clean else {}
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
        "corruptions": _readable_corruptions(spec, data_dir) if isinstance(spec, CorruptedSpec) else [],
    }


def _readable_corruptions(spec: CorruptedSpec, data_dir: Path | None) -> list[str]:
    folder = spec.corruptions_folder(data_dir)
    if folder is None:
        return []
    return [name for name in PUBLISHED if cifar_c.read_corruption(folder, name, severity=1) is not None]
