"""Launching kernels: with how many programs, and how they are compiled side by side before any of them is run.

Compiling a network's kernels one after the other takes half a minute. In `compiling_ahead` a launch is handed to a
thread that compiles it, and nothing is computed: results are zeros, which somebody throws away.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

MOST_PROGRAMS = 2**31 - 1
"""Along the first axis of a grid. Along the others a GPU takes 65,535, which a few federations of a hundred clients
exceed: every grid here has one axis, and programs divide their number."""


def grid(*counts: int) -> tuple[int]:
    """One axis for all of them, the first count running fastest."""
    programs = math.prod(counts)
    if programs > MOST_PROGRAMS:
        raise ValueError(f"{programs} programs are more than a GPU takes at once; let fewer clients share a batch")
    return (programs,)


def launch(kernel: Any, *counts: int) -> Callable[..., Any]:
    """The kernel with this many programs, waiting for its arguments."""
    if _Ahead.current is None:
        launched: Callable[..., Any] = kernel[grid(*counts)]
        return launched
    return _Ahead.current.compiler_of(kernel, grid(*counts))


def room(like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Memory for a result, on the device of another tensor."""
    make = like.new_empty if _Ahead.current is None else like.new_zeros
    return make(tuple(shape), dtype=dtype or like.dtype)


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Within, kernels are compiled instead of run; at the end all of them are ready."""
    device = torch.cuda.current_device() if torch.cuda.is_available() else None
    of_device = () if device is None else (device,)
    ahead = _Ahead(ThreadPoolExecutor(min(32, os.cpu_count() or 1), initializer=_use, initargs=of_device))
    _Ahead.current = ahead
    try:
        yield
    finally:
        _Ahead.current = None
        wait(ahead.begun.values())  # one that does not compile says so when it is launched
        ahead.threads.shutdown()


def _use(*devices: int) -> None:
    for device in devices:
        torch.cuda.set_device(device)


class _Ahead:
    current: "_Ahead | None" = None
    """Of all threads: PyTorch makes gradients on one of its own."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.begun: dict[object, Future[Any]] = {}

    def compiler_of(self, kernel: Any, programs: tuple[int]) -> Callable[..., None]:
        def compile_later(*arguments: Any, **constants: Any) -> None:
            shown = [_Shown(value) if isinstance(value, Tensor) else value for value in arguments]
            kinds = tuple(_kind(value, parameter) for value, parameter in zip(shown, kernel.params, strict=False))
            key = (kernel.__name__, kinds, tuple(sorted(constants.items())))
            if key not in self.begun:
                self.begun[key] = self.threads.submit(kernel.warmup, *shown, grid=programs, **constants)

        return compile_later


def _kind(value: Any, parameter: Any) -> object:
    """What a kernel is compiled for: of plain numbers, whether they are 1 and whether 16 divides them."""
    if isinstance(value, _Shown):
        return value.kind
    if parameter.is_constexpr or not isinstance(value, int):
        return value
    return None if parameter.do_not_specialize else (value == 1, value % 16 == 0)


class _Shown:
    """What a compiler asks of a tensor; the tensor itself need not be kept."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.address = tensor.dtype, tensor.data_ptr() % 16
        self.kind = (self.dtype, self.address)

    def data_ptr(self) -> int:
        return self.address
