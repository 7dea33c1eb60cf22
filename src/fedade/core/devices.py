"""From host memory to a device without waiting for it."""

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
