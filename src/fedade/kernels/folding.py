"""Normalisation with fixed statistics, folded into the convolution before it."""

import importlib
import importlib.util
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """What a normalisation layer does to each channel: scale (x - mean) / √(variance + eps) + shift."""

    scale: Tensor
    shift: Tensor
    mean: Tensor
    variance: Tensor
    eps: float

    def combined(self) -> tuple[Tensor, Tensor]:
        """The same as one factor and one summand."""
        factor = self.scale * torch.rsqrt(self.variance + self.eps)
        return factor, self.shift - self.mean * factor


def folded(weights: Tensor, affine: Affine) -> tuple[Tensor, Tensor]:
    """Weights and bias of the convolution that does both; on a GPU one kernel there and one back, not sixteen."""
    if weights.is_cuda and weights.dtype is torch.float32 and importlib.util.find_spec("triton") is not None:
        found: tuple[Tensor, Tensor] = _lanes().folded(weights, *affine)
        return found
    factor, summand = affine.combined()
    return weights * factor[:, None, None, None], summand


@cache
def _lanes() -> Any:
    return importlib.import_module("fedade.kernels.folding_lanes")
