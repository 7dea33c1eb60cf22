"""A pass that was made already is not made again: scoring a client and observing often need the same features."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from fedade.core.normalisation import Frozen, Mixed, Normalisation

Key: TypeAlias = tuple[object, ...]
Results: TypeAlias = dict[Key, tuple[tuple[Tensor, ...], Tensor]]
"""By normalisation and the identities of what went in, which is kept, so that nothing else takes its place."""


@dataclass(frozen=True)
class Constants:
    """Tensors that never change, and the results of passes that need no others: they outlive a memory."""

    tensors: tuple[Tensor, ...]
    results: Results = field(default_factory=dict)

    @cached_property
    def identities(self) -> frozenset[int]:
        """Of the tensors."""
        return frozenset(map(id, self.tensors))


_NOTHING = Constants(())


@dataclass
class Memory:
    """Results of the passes of one client's function."""

    constants: Constants
    results: Results = field(default_factory=dict)
    told: set[Key] = field(default_factory=set)
    """Results that were made elsewhere."""
    recalled: bool = False
    """Whether one of those was of use."""


_memory: ContextVar[Memory | None] = ContextVar("passes", default=None)


@contextmanager
def remembering_passes(constants: Constants = _NOTHING) -> Iterator[Memory]:
    """Within, a pass with the very same tensors and the same normalisation is made once; with constants alone, once
    and for all.

    Tensors must not be written to meanwhile.
    """
    memory = Memory(constants)
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
    identities = tuple(map(id, tensors))
    results = memory.constants.results if memory.constants.identities.issuperset(identities) else memory.results
    key = (normalisation, *identities)
    if key not in results:
        results[key] = tensors, compute()
    memory.recalled |= key in memory.told
    return results[key][1]


def tell(tensors: tuple[Tensor, ...], normalisation: Normalisation, result: Tensor) -> None:
    """What a pass would give, for those who ask within `remembering_passes`."""
    memory = _memory.get()
    assert memory is not None  # noqa: S101 - there is nobody to tell it to
    key = (normalisation, *map(id, tensors))
    memory.results[key] = tensors, result
    memory.told.add(key)
