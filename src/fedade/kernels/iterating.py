"""The same small affine map, many times."""

import importlib
import importlib.util
from functools import cache
from typing import Any

from torch import Tensor


def absolute_iterations(start: Tensor, constant: Tensor, matrix: Tensor, share: float, iterations: int) -> Tensor:
    """s <- constant + |s| matrix + share s, so many times; one kernel on a GPU, if the matrix is small."""
    if matrix.is_cuda and len(matrix) <= MOST_CLASSES and importlib.util.find_spec("triton") is not None:
        found: Tensor = _simplex().iterate(start, constant, matrix, share, iterations)
        return found
    state = start
    for _ in range(iterations):
        state = (constant + state.abs() @ matrix).add(state, alpha=share)
    return state


MOST_CLASSES = 32
"""The kernel holds the matrix in registers, which larger ones overflow."""


@cache
def _simplex() -> Any:
    return importlib.import_module("fedade.kernels.simplex")
