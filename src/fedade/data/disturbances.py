"""Disturbances that any sensor knows, of inputs of any kind: noise, less contrast, blur, brightness."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad


def disturbed(inputs: Tensor, kind: str, strength: float, seed: int) -> Tensor:
    """Inputs `[n, ...]` of the same type and shape, disturbed; tokens stay as they are, tables are never blurred."""
    if kind == "none" or (not inputs.is_floating_point() and inputs.dtype != torch.uint8):
        return inputs
    values = inputs.float()
    deviation = values.std([axis for axis in range(values.ndim) if axis != 1], keepdim=True)
    if kind == "noise":
        generator = torch.Generator().manual_seed(seed)
        values = values + strength * deviation * torch.randn(values.shape, generator=generator).to(values)
    elif kind == "brightness":
        values = values + strength * deviation
    elif kind == "contrast":
        centre = values.mean(tuple(range(1, values.ndim)) if values.ndim > 2 else 0, keepdim=True)
        values = centre + (1 - strength) * (values - centre)
    elif kind == "blur" and values.ndim == 4:
        for _ in range(round(strength)):
            values = avg_pool2d(pad(values, (1, 1, 1, 1), "replicate"), 3, 1)
    return values.round().clamp(0, 255).to(torch.uint8) if inputs.dtype == torch.uint8 else values.to(inputs.dtype)
