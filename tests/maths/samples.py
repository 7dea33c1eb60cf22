"""Inputs for the property tests: vectors drawn by hypothesis, larger tensors from a drawn seed."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

QUICK = settings(max_examples=40, deadline=None)

seeds = st.integers(0, 2**31 - 1)
unit_interval = st.floats(0, 1, width=32)


def vectors(low: float = -100.0, high: float = 100.0, size: int = 5) -> st.SearchStrategy[Tensor]:
    """float32 vectors of one size, zeros included."""
    entries = st.lists(st.floats(low, high, width=32), min_size=size, max_size=size)
    return entries.map(lambda values: torch.tensor(values, dtype=torch.float32))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def softmax_batch(seed: int, *shape: int, scale: float = 2.0) -> Tensor:
    return torch.softmax(scale * torch.randn(*shape, generator=generator(seed)), -1)


def labels(seed: int, *shape: int, num_classes: int) -> Tensor:
    return torch.randint(num_classes, shape, generator=generator(seed + 1))


def is_distribution(tensor: Tensor) -> bool:
    sums_to_one = torch.allclose(tensor.sum(-1), torch.ones(()).to(tensor), atol=1e-5)
    return bool(torch.isfinite(tensor).all() and (tensor >= 0).all()) and sums_to_one
