"""What a method costs a client: forward passes of single samples, counted where they happen."""

from dataclasses import dataclass, field
from threading import Lock

import torch

TRAINING_FACTOR = 3
"""A forward and a backward pass cost about three forward passes."""


@dataclass
class PassCounter:
    """Counts the passes of clients' functions, and how often such a function was called."""

    passes: int = 0
    calls: int = 0
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    """Clients may run on several threads."""

    def add_call(self) -> None:
        """Count a call of a client's function."""
        with self.lock:
            self.calls += 1

    def add_pass(self, samples: int) -> None:
        """Count a pass over so many samples; gradients are enabled in training passes only."""
        with self.lock:
            self.passes += samples * (TRAINING_FACTOR if torch.is_grad_enabled() else 1)

    @property
    def per_client(self) -> float:
        """Mean over calls: a vectorised call stands for many clients that each do the same work."""
        return self.passes / max(1, self.calls)
