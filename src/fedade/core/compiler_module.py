"""PyTorch's compiler, imported when somebody compiles something.

`torch.func.grad` switches compiled gradients off while it works, and imports the whole compiler for it: 900 modules,
more than a second of every process that takes a gradient. Nothing has to be switched off that was never imported.
"""

import importlib
import sys
from contextlib import nullcontext
from typing import Any

import torch

NAME = "torch._dynamo"


class _Later:
    """Stands for a module until something is asked of it."""

    def __init__(self, name: str, **known: Any) -> None:
        vars(self).update(_name=name, **known)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def import_compiler_later() -> None:
    """Let `torch.func` take gradients without the compiler; importing it replaces the stand-in."""
    if NAME not in sys.modules:
        gradients = _Later(f"{NAME}.compiled_autograd", _disable=nullcontext)
        vars(torch).setdefault("_dynamo", _Later(NAME, compiled_autograd=gradients))
