"""Kernels that a piece of work will need, compiled on all cores before any of them is run.

One after the other, as launches ask for them, a network's kernels take half a minute. Within `instead_of_running` the
work is gone through without its kernels: a launch hands its kernel to a thread that compiles it, and leaves zeros where
a result would be. Triton's passes and the assembler let other threads go on meanwhile.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

MOST_THREADS = 32


class Compiler:
    """Compiles each kind of launch once."""

    current: "Compiler | None" = None
    """Of all threads: PyTorch makes gradients in one of its own."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.begun: dict[object, Future[None]] = {}

    def launch(self, kernel: Any, programs: tuple[int], *arguments: Any, **constants: Any) -> None:
        """Begin to compile what a launch with these arguments would run, if nobody has yet."""
        shown = [_shown(value) for value in arguments]
        kinds = tuple(_kind(value, parameter) for value, parameter in zip(shown, kernel.params, strict=False))
        key = (kernel.__name__, kinds, tuple(sorted(constants.items())))
        if key not in self.begun:
            _prepare(kernel)
            before = next(iter(self.begun.values()), None)
            self.begun[key] = self.threads.submit(_compile, before, kernel, shown, programs, constants)

    def launcher(self, kernel: Any, programs: tuple[int]) -> Callable[..., None]:
        """In place of the kernel with so many programs."""
        return partial(self.launch, kernel, programs)


@contextmanager
def instead_of_running() -> Iterator[Compiler]:
    """Within, kernels are compiled and not run; afterwards all of them are there."""
    device = (torch.cuda.current_device(),) if torch.cuda.is_available() else ()
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "fedade-compiler", _use, device) as threads:
        Compiler.current = compiler = Compiler(threads)
        try:
            yield compiler
        finally:
            Compiler.current = None
            wait(compiler.begun.values())  # one that does not compile says so when it is launched


def _prepare(kernel: Any) -> None:
    """Make the place where Triton keeps a kernel's variants: two threads would make one each, and one would be lost."""
    _ = kernel.device_caches[torch.cuda.current_device() if torch.cuda.is_available() else 0]


def _compile(
    before: Future[None] | None, kernel: Any, shown: list[Any], programs: tuple[int], constants: dict[str, Any]
) -> None:
    if before is not None:
        wait([before])  # the first of all also prepares what Triton keeps for the others
    compiled = kernel.warmup(*shown, grid=programs, **constants)
    if torch.cuda.is_available():
        _ = compiled.run  # loads it, and makes the code that launches it


def _use(*device: int) -> None:
    if device:
        torch.cuda.set_device(*device)


class _Shown:
    """What Triton asks of a tensor that it compiles for; the tensor itself need not be kept."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.alignment = tensor.dtype, tensor.data_ptr() % 16

    def data_ptr(self) -> int:
        return self.alignment


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    return _Shown(value) if isinstance(value, Tensor) else value


def _kind(value: Any, parameter: Any) -> object:
    """What a kernel is compiled for: of numbers that may vary, whether they are 1 and whether 16 divides them."""
    if isinstance(value, tuple) and not parameter.is_constexpr:
        return tuple(_kind(one, parameter) for one in value)
    if isinstance(value, _Shown):
        return value.dtype, value.alignment == 0 and not parameter.do_not_specialize
    if isinstance(value, float) and not parameter.is_constexpr:
        return float
    if parameter.is_constexpr or not isinstance(value, int):
        return value
    return None if parameter.do_not_specialize else (value == 1, value % 16 == 0)
