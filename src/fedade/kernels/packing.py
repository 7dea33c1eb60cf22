"""Weights of many layers in the precision of their products, in as few launches as can be."""

from collections.abc import Sequence

import torch
from torch import Tensor

ALIGNED = 16
"""Numbers from whose multiples a GPU reads best."""
LEAST_SHARE = 0.9
"""Of a stretch of memory that is copied as one, so much has to be weights."""


def packed_copies(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies, dense within a lane. Weights that lie side by side, as in a vector of all of a client's, are one copy."""
    found: list[Tensor | None] = [None] * len(weights)
    for places in _by_memory(weights):
        copies = _as_one([weights[place] for place in places], dtype)
        for place, copy in zip(places, copies, strict=False):
            found[place] = copy
    alone = [place for place, copy in enumerate(found) if copy is None]
    copies = [weights[place].new_empty(weights[place].shape, dtype=dtype) for place in alone]
    if copies:
        torch._foreach_copy_(copies, [weights[place] for place in alone])
    rest = iter(copies)
    return [next(rest) if copy is None else copy for copy in found]


def _by_memory(weights: Sequence[Tensor]) -> list[list[int]]:
    """Numbers of those that share memory, lanes and the way from one lane to the next, where there are several."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for place, weight in enumerate(weights):
        if weight[0].is_contiguous():
            step = 0 if len(weight) == 1 else weight.stride(0)
            groups.setdefault((weight.untyped_storage().data_ptr(), len(weight), step), []).append(place)
    return [places for places in groups.values() if len(places) > 1]


def _as_one(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Parts of one copy of all that lies between them; none where much of that is something else."""
    firsts, sizes = [weight.storage_offset() for weight in weights], [weight[0].numel() for weight in weights]
    begin, lanes, step = min(firsts), len(weights[0]), weights[0].stride(0)
    size = max(first + own for first, own in zip(firsts, sizes, strict=True)) - begin
    if sum(sizes) < LEAST_SHARE * size or any((first - begin) % ALIGNED for first in firsts):
        return []
    together = weights[0].new_empty((lanes, -(-size // ALIGNED) * ALIGNED), dtype=dtype)
    together[:, :size].copy_(weights[0].as_strided((lanes, size), (step, 1), begin))
    return [
        together[:, first - begin :][:, :own].view(lanes, *weight.shape[1:])
        for weight, first, own in zip(weights, firsts, sizes, strict=True)
    ]
