"""In which precision a network multiplies; parameters, statistics, features and logits are float32 throughout."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bf16"]
"""`tf32` and `bf16` need a GPU; bf16 also stores activations in two bytes."""

_in_force: ContextVar[Precision] = ContextVar("precision", default="float32")


def precision_in_force() -> Precision:
    """The precision that layers multiply in."""
    return _in_force.get()


@contextmanager
def computing(precision: Precision) -> Iterator[None]:
    """Put a precision in force for one forward pass."""
    token = _in_force.set(precision)
    try:
        yield
    finally:
        _in_force.reset(token)


def set_multiplication(precision: Precision) -> None:
    """Tell PyTorch's own matrix products and convolutions; they would round to TF32 in convolutions by default."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = precision != "float32"
