"""Results that depend on constants alone, computed once."""

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def of_constants(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Keep the results of a function of tensors that are never written to, such as a deployment's confusion matrix.

    Tensors are told apart by identity, not by value, and the last few are kept alive. Factorisations wait for the
    device and cannot be part of a CUDA graph; done once, they are not in the way.
    """
    remembered: Callable[Arguments, Result] = lru_cache(maxsize=32)(function)  # type: ignore[assignment]
    return remembered
