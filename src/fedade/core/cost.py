"""What a method costs a client: forward passes of single samples, counted where they happen."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock

import torch

TRAINING_FACTOR = 3
"""A forward and a backward pass cost about three forward passes."""


@dataclass
class PassCounter:
    """Passes of the clients' functions, and how often such a function was called."""

    passes: int = 0
    calls: int = 0
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    """Clients may run on several threads."""

    def add(self, passes: int = 0, calls: int = 0) -> None:
        """Count more."""
        with self.lock:
            self.passes += passes
            self.calls += calls

    @property
    def per_client(self) -> float:
        """Mean over calls: a vectorised call stands for many clients that each do the same work."""
        return self.passes / max(1, self.calls)


_counter: ContextVar[PassCounter | None] = ContextVar("passes", default=None)


def count_pass(samples: int) -> None:
    """Called by networks; gradients are enabled in training passes only."""
    counter = _counter.get()
    if counter is not None:
        counter.add(passes=samples * (TRAINING_FACTOR if torch.is_grad_enabled() else 1))


@contextmanager
def counting_passes() -> Iterator[PassCounter]:
    """Count the passes that are made inside."""
    counter = PassCounter()
    token = _counter.set(counter)
    try:
        yield counter
    finally:
        _counter.reset(token)
