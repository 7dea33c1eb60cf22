"""All clients at once, by `torch.func.vmap`."""

from collections.abc import Callable
from dataclasses import dataclass

from torch.func import vmap

from fedade.core.tree import Tree


@dataclass(frozen=True)
class Vectorised:
    """Maps chunks of clients; what they share (closed over) is computed once, as one ordinary batch."""

    chunk_size: int | None = None
    """Clients at a time, to bound memory; None for all."""

    def __call__(self, function: Callable[..., Tree], *arguments: Tree) -> Tree:
        """Apply the function of one client to every row of its arguments."""
        return vmap(function, randomness="error", chunk_size=self.chunk_size)(*arguments)
