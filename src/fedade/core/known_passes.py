"""A pass that was made already is not made again: scoring a client and observing often need the same features."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import torch
from torch import Tensor

from fedade.core.normalisation import Frozen, Mixed, Normalisation

_Memory: TypeAlias = dict[tuple[object, ...], tuple[tuple[Tensor, ...], Tensor]]
"""Results by the identities of the tensors that they came from, which are kept so that no other takes their place."""

_memory: ContextVar[_Memory | None] = ContextVar("passes", default=None)


@contextmanager
def remembering_passes() -> Iterator[None]:
    """Within, a pass with the very same tensors and the same normalisation is made once.

    Tensors must not be written to meanwhile.
    """
    token = _memory.set({})
    try:
        yield
    finally:
        _memory.reset(token)


def remembered(tensors: tuple[Tensor, ...], normalisation: Normalisation, compute: Callable[[], Tensor]) -> Tensor:
    """The result of a pass; training passes are not kept, since each has its own parameters and a graph behind it."""
    memory = _memory.get()
    if memory is None or torch.is_grad_enabled() or not isinstance(normalisation, Frozen | Mixed):
        return compute()
    key = (normalisation, *map(id, tensors))
    if key not in memory:
        memory[key] = tensors, compute()
    return memory[key][1]
