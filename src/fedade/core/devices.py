"""Memory of devices."""

import gc
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """An array as a tensor there. Pinned on its way to a GPU: copies from pageable memory would wait for the device."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def release_memory(device: str) -> None:
    """Give back what PyTorch keeps for later: other processes may be waiting for it."""
    if device.startswith("cuda"):
        gc.collect()
        torch.cuda.empty_cache()
