"""Writes small datasets in every layout that is read."""

import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CIFAR10_NAMES = [f"class-{label}" for label in range(10)]


def some_images(count: int, side: int = 32, seed: int = 0) -> np.ndarray:
    """Random images `[N, 3, side, side]`."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), dtype=np.uint8)


def encoded(image: np.ndarray, kind: str = "PNG") -> bytes:
    """One image `[3, height, width]` or, as grey, `[height, width]`, encoded without loss."""
    buffer = io.BytesIO()
    pixels = image.transpose(1, 2, 0) if image.ndim == 3 else image
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, kind, lossless=True)
    return buffer.getvalue()


def write_parquet(
    path: Path,
    contents: Sequence[bytes],
    labels: Sequence[int],
    image: str = "img",
    label: str = "label",
    names: Sequence[str] | None = CIFAR10_NAMES,
) -> None:
    """A shard as the Hugging Face hub writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = pa.array([{"bytes": content, "path": None} for content in contents])
    table = pa.table({image: images, label: pa.array(list(labels), pa.int64())})
    if names is not None:
        features = {label: {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)


def write_cifar10_parquet(folder: Path, per_class: int = 2) -> np.ndarray:
    """A tiny CIFAR-10 in parquet below a data folder; returns its training images."""
    labels = list(range(10)) * per_class
    images = some_images(len(labels))
    write_parquet(folder / "cifar10/plain_text/train-00000-of-00001.parquet", [encoded(i) for i in images], labels)
    write_parquet(
        folder / "cifar10/plain_text/test-00000-of-00001.parquet",
        [encoded(i) for i in images[:10]],
        labels[:10],
    )
    return images


def write_cifar10_batches(folder: Path, batches: Sequence[int] = (1, 2), protocol: int = 2) -> np.ndarray:
    """A tiny `cifar-10-batches-py`; returns its training images."""
    root = folder / "cifar-10-batches-py"
    root.mkdir(parents=True, exist_ok=True)
    images = [some_images(10, seed=number) for number in batches]
    for number, batch in zip(batches, images, strict=True):
        dump_batch(root / f"data_batch_{number}", batch, list(range(10)), protocol)
    dump_batch(root / "test_batch", some_images(10, seed=99), list(range(10)), protocol)
    (root / "batches.meta").write_bytes(pickle.dumps({"label_names": CIFAR10_NAMES}, protocol))
    return np.concatenate(images)


def dump_batch(path: Path, images: np.ndarray, labels: list[int], protocol: int = 2) -> None:
    """One batch as the CIFAR authors store it."""
    content = {"batch_label": "a batch", "labels": labels, "data": images.reshape(len(images), -1)}
    path.write_bytes(pickle.dumps(content, protocol))


def write_image(path: Path, image: np.ndarray) -> None:
    """One image file, in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(path)
