"""With how many programs kernels are launched."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedade.kernels.compiling import Compiler
from fedade.kernels.tilings import power_of_two

MOST_PROGRAMS = 2**31 - 1
"""Along the first axis of a grid. Along the others a GPU takes 65,535, which a few federations of a hundred clients
exceed: every grid here has one axis, and programs divide their number."""
TILE = 2048
"""Numbers that a program reads at a time."""


def grid(*counts: int) -> tuple[int]:
    """One axis for all of them, the first count running fastest."""
    programs = math.prod(counts)
    if programs > MOST_PROGRAMS:
        raise ValueError(f"{programs} programs are more than a GPU takes at once; let fewer clients share a batch")
    return (programs,)


def launch(kernel: Any, *counts: int) -> Callable[..., Any]:
    """The kernel with this many programs, waiting for its arguments."""
    if Compiler.current is not None:
        return Compiler.current.launcher(kernel, grid(*counts))
    launched: Callable[..., Any] = kernel[grid(*counts)]
    return launched


def room(like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Memory for a result, on the device of another tensor."""
    make = like.new_empty if Compiler.current is None else like.new_zeros
    return make(tuple(shape), dtype=dtype or like.dtype)


def by_pixel(images: Tensor) -> Tensor:
    """`[..., height, width, channels]`."""
    return images.movedim(-3, -1)


@dataclass(frozen=True)
class RowBlocks:
    """How rows of images, a pixel's channels each, are cut for programs; those of a group have common statistics."""

    rows: int
    """Of a group."""
    each: int
    """Groups of a lane."""
    breadth: int
    at_once: int
    programs: tuple[int, int, int]
    """Tiles of the channels, blocks of a group's rows, groups."""


def row_blocks(shape: tuple[int, ...], each: int) -> RowBlocks:
    """Of images of this shape, whose lanes have so many statistics."""
    lanes, samples, height, width, channels = shape
    rows, breadth = samples * height * width // each, min(256, power_of_two(channels))
    at_once = max(1, TILE // breadth)
    programs = -(-channels // breadth), -(-rows // at_once), lanes * each
    return RowBlocks(rows, each, breadth, at_once, programs)
