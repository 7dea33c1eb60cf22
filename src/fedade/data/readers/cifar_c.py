"""CIFAR-10-C and CIFAR-100-C as released: one array per corruption, five severities one after the other.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", 2019.
"""

from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.checksums import damaged
from fedade.data.corruptions.registry import MAX_SEVERITY, PUBLISHED


def recognises(folder: Path) -> bool:
    return bool(files(folder))


def files(folder: Path) -> list[Path]:
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
    one_severity = images[(severity - 1) * per_severity : severity * per_severity]
    return cast("NDArray[np.uint8]", one_severity)


def read_labels(folder: Path) -> NDArray[np.generic] | None:
    """Labels of the images of one severity; None where the folder has no `labels.npy`."""
    path = folder / "labels.npy"
    if not path.is_file():
        return None
    labels = load_array(path)
    return labels[: len(labels) // MAX_SEVERITY]


def load_array(path: Path) -> NDArray[np.generic]:
    """The array in a `.npy` file, memory-mapped; files that would need unpickling are refused."""
    try:
        array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, str(error)) from error
    return array
