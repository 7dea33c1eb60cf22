"""How many threads PyTorch uses on a CPU, memory of devices, and whether they still answer."""

import gc
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALL_NETWORK = 100_000
"""Parameters up to which one thread is fastest: handing out such short operations costs more than it saves, and far
more on a machine that does other work (docs/performance.md)."""


def available_cores() -> int:
    """Cores that this process may use; all of the machine's where the system keeps no such list (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(num_parameters: int) -> None:
    """Threads for a network of this size; `OMP_NUM_THREADS`, where set, is left alone."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1 if num_parameters <= SMALL_NETWORK else available_cores())


def to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """An array as a tensor there. Pinned on its way to a GPU: copies from pageable memory would wait for the device."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def is_lost(device: str) -> bool:
    """Whether a GPU answers this process no more: after an access out of bounds, of a kernel of its own or of a process
    that it shares the GPU with, every call fails until the process ends."""
    if not device.startswith("cuda"):
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def release_memory(device: str) -> None:
    """Give back what PyTorch keeps for later: other processes may be waiting for it."""
    if device.startswith("cuda"):
        gc.collect()
        torch.cuda.empty_cache()
