"""The user's own arrays: numpy files of inputs and labels."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.data.dataset import Dataset, Labelled, assemble, checked_labels
from fedade.data.download import unreadable_array
from fedade.data.readers.cifar import load_array

Part = tuple[NDArray[np.generic], NDArray[np.generic], Path]
ROWS_PER_CHECK = 4096
LARGEST_PIXEL = 65535.0
"""The brightest pixel of cameras with 16 bits."""


def read_arrays(folder: Path, name: str) -> Dataset:
    """A folder of arrays, or one `.npz` file, as a dataset.

    Each part is `PART.npz` with `inputs` and `labels`, or `PART_inputs.npy` and `PART_labels.npy`, where PART is
    `train` or `test`; plain `inputs.npy` and `labels.npy`, and a single file, are a training part. Inputs are images
    `[N, channels, height, width]`, `[N, height, width, channels]` or grey `[N, height, width]`, of bytes or floats; or
    rows of a table, `[N, features]`, or of tokens. Without a test part every fifth example of a class is held out.
    """
    train = _npz_part(folder) or _part(folder, "train") or _npy_part(folder, "")
    if train is None:
        wrong = "holds no arrays" if folder.exists() else "does not exist"
        raise FedadeError(
            f"{folder} {wrong}; expected an .npz file, or a folder with train.npz, inputs.npy with labels.npy, "
            "or train_inputs.npy with train_labels.npy"
        )
    inputs, raw_labels, source = train
    labels = _labels_of(inputs, raw_labels, source)
    class_names = tuple(str(label) for label in range(int(labels.max()) + 1))
    test = _part(folder, "test")
    test_part = Labelled(test[0], _labels_of(*test, len(class_names))) if test else None
    return assemble(name, class_names, Labelled(inputs, labels), test_part, folder)


def _part(folder: Path, part: str) -> Part | None:
    return _npz_part(folder / f"{part}.npz") or _npy_part(folder, f"{part}_")


def _npz_part(path: Path) -> Part | None:
    if not path.is_file():
        return None
    content: dict[str, NDArray[np.generic]] = {}
    name = "arrays"
    try:
        # numpy leaves a file that it opened itself open when it turns out not to be an archive.
        with path.open("rb") as file:
            if path.suffix != ".npz" or file.read(2) != b"PK":
                raise FedadeError(
                    f"{path} is no .npz file; write one with numpy.savez('data.npz', inputs=..., labels=...)"
                )
            file.seek(0)
            with storage.reading_arrays(), np.load(file, allow_pickle=False) as arrays:
                for name in arrays.files:
                    content[name] = arrays[name]
    except (OSError, ValueError, LookupError) as error:
        raise unreadable_array(path, name, error) from error
    if not {"inputs", "labels"} <= set(content):
        raise FedadeError(f"{path} holds {', '.join(content) or 'nothing'}; expected arrays 'inputs' and 'labels'")
    return checked_inputs(content["inputs"], path), content["labels"], path


def _npy_part(folder: Path, prefix: str) -> Part | None:
    inputs, labels = folder / f"{prefix}inputs.npy", folder / f"{prefix}labels.npy"
    if not inputs.is_file():
        return None
    if not labels.is_file():
        raise FedadeError(f"{labels} is missing beside {inputs.name}; add one label per row")
    return checked_inputs(load_array(inputs), inputs), load_array(labels), inputs


def _labels_of(
    inputs: NDArray[np.generic], labels: NDArray[np.generic], source: Path, num_classes: int | None = None
) -> NDArray[np.int64]:
    if labels.shape != (len(inputs),):
        raise FedadeError(f"{source}: {len(inputs)} inputs but labels of shape {list(labels.shape)}; expected one each")
    if num_classes is None:
        num_classes = max(int(labels.max()) + 1, 1) if labels.size and labels.dtype.kind in "iu" else 1
    return checked_labels(labels, num_classes, source)


def checked_inputs(inputs: NDArray[np.generic], source: object) -> NDArray[np.generic]:
    """Inputs as bytes, finite float32, or int64 of two axes; images with their channels first. Views where possible."""
    if inputs.ndim < 2 or len(inputs) == 0:
        raise FedadeError(f"{source}: inputs have shape {list(inputs.shape)}; expected rows of features or images")
    if inputs.ndim == 2 and inputs.dtype.kind in "iu" and inputs.dtype != np.uint8:
        return inputs.astype(np.int64, copy=False)
    if inputs.dtype != np.uint8 and inputs.dtype.kind != "f":
        raise FedadeError(f"{source}: inputs are {inputs.dtype}; expected uint8 images or floating-point numbers")
    if inputs.dtype.kind == "f":
        inputs = inputs.astype(np.float32, copy=False)
        for start in range(0, len(inputs), ROWS_PER_CHECK):
            _check_numbers(inputs[start : start + ROWS_PER_CHECK], start, source)
    if inputs.ndim == 3:
        return inputs[:, None]
    channels_last = inputs.ndim == 4 and inputs.shape[-1] in (1, 3) and inputs.shape[1] not in (1, 3)
    return np.moveaxis(inputs, -1, 1) if channels_last else inputs


def _check_numbers(inputs: NDArray[np.generic], first: int, source: object) -> None:
    """Refuse numbers that are not finite, and pixels that no camera gives; columns of a table may be large."""
    largest = np.abs(inputs).reshape(len(inputs), -1).max(axis=1)
    broken = np.flatnonzero(~np.isfinite(largest))
    if len(broken):
        raise FedadeError(f"{source}: row {first + broken[0]} holds a value that is not finite; remove or mend it")
    if inputs.ndim > 2 and largest.max() > LARGEST_PIXEL:
        raise FedadeError(
            f"{source}: row {first + int(largest.argmax())} has a pixel of {largest.max():.6g}; scale images to 0 to "
            "1, or store them as uint8"
        )
