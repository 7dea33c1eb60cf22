"""A pass that was made already is not made again: scoring a client and observing often need the same features."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedade.core.normalisation import Frozen, Mixed, Normalisation


@dataclass
class Memory:
    """Results of passes by the identities of the tensors that went in; those are kept, so that no other takes their
    place."""

    results: dict[tuple[object, ...], tuple[tuple[Tensor, ...], Tensor]] = field(default_factory=dict)
    told: set[tuple[object, ...]] = field(default_factory=set)
    """Results that were made elsewhere."""
    recalled: bool = False
    """Whether one of those was of use."""


_memory: ContextVar[Memory | None] = ContextVar("passes", default=None)


@contextmanager
def remembering_passes() -> Iterator[Memory]:
    """Within, a pass with the very same tensors and the same normalisation is made once.

    Tensors must not be written to meanwhile.
    """
    memory = Memory()
    token = _memory.set(memory)
    try:
        yield memory
    finally:
        _memory.reset(token)


def remembered(tensors: tuple[Tensor, ...], normalisation: Normalisation, compute: Callable[[], Tensor]) -> Tensor:
    """The result of a pass; training passes are not kept, since each has its own parameters and a graph behind it."""
    memory = _memory.get()
    if memory is None or torch.is_grad_enabled() or not isinstance(normalisation, Frozen | Mixed):
        return compute()
    key = (normalisation, *map(id, tensors))
    if key not in memory.results:
        memory.results[key] = tensors, compute()
    memory.recalled |= key in memory.told
    return memory.results[key][1]


def tell(tensors: tuple[Tensor, ...], normalisation: Normalisation, result: Tensor) -> None:
    """What a pass would give, for those who ask within `remembering_passes`."""
    memory = _memory.get()
    assert memory is not None  # noqa: S101 - there is nobody to tell it to
    key = (normalisation, *map(id, tensors))
    memory.results[key] = tensors, result
    memory.told.add(key)
