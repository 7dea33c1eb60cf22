"""Running the function of one client for many: `loop`, `side_by_side` and `Vectorised`, which must agree."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache

import torch
from torch.func import vmap

from fedade.core.compiler_module import import_compiler_later
from fedade.core.tree import Tree, each_row, leaves, stack, take

import_compiler_later()

loop = each_row
"""One client after the other: the reference, for debugging and for judging the others."""


def side_by_side(function: Callable[..., Tree], *arguments: Tree) -> Tree:
    """Apply the function of one client to every row of its arguments, on as many cores as PyTorch has threads.

    Several threads within one operation wait for one another after each, several clients never do.
    """
    cores, gradients = torch.get_num_threads(), torch.is_grad_enabled()

    def of_client(row: int) -> Tree:
        with torch.set_grad_enabled(gradients):
            return function(*(take(argument, row) for argument in arguments))

    rows = range(len(leaves(arguments)[0]))
    if cores == 1:
        return stack([of_client(row) for row in rows])
    try:
        running = [_workers(cores).submit(copy_context().run, of_client, row) for row in rows]
        return stack([future.result() for future in running])
    finally:
        torch.set_num_threads(cores)  # the workers' own number holds for the matrix library of the whole process


@cache
def _workers(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, "fedade-client", initializer=torch.set_num_threads, initargs=(1,))


@dataclass(frozen=True)
class Vectorised:
    """Maps chunks of clients; what they share (closed over) is computed once, as one ordinary batch."""

    chunk_size: int | None = None
    """Clients at a time, to bound memory; None for all."""

    def __call__(self, function: Callable[..., Tree], *arguments: Tree) -> Tree:
        """Apply the function of one client to every row of its arguments."""
        rows = len(leaves(arguments)[0])
        # Of a single chunk PyTorch would copy all results, too.
        chunk_size = None if self.chunk_size is None or self.chunk_size >= rows else self.chunk_size
        return vmap(function, randomness="error", chunk_size=chunk_size)(*arguments)
