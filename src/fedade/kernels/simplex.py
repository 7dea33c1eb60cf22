"""Solvers' many tiny iterations as one kernel each: on a GPU every iteration would be several launches."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room

SMALLEST: tl.constexpr = tl.constexpr(torch.finfo(torch.float64).tiny)
"""What a likelihood of nothing is taken for."""


def iterate(start: Tensor, constant: Tensor, matrix: Tensor, share: float, iterations: int) -> Tensor:
    """s <- constant + |s| matrix + share s, so many times, for vectors along any leading axes."""
    result: Tensor = _Iterate.apply(start, constant, matrix, share, iterations)
    return result


class _Iterate(Function):
    """Without a gradient: nothing learns through a prior."""

    @staticmethod
    def forward(start: Tensor, constant: Tensor, matrix: Tensor, share: float, iterations: int) -> Tensor:
        """Run all iterations."""
        classes = matrix.shape[-1]
        start, constant = (value.expand(constant.shape).contiguous() for value in (start, constant))
        result = room(constant, constant.shape)
        rows = constant.numel() // classes
        launch(_iterations, rows)(
            start, constant, matrix.contiguous(), result, iterations, share, classes, triton.next_power_of_2(classes)
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], start: Tensor, constant: Tensor, matrix: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        """Mapped vectors are further rows; the matrix is common to all."""
        if in_dims[2] is not None:
            raise NotImplementedError("one matrix for all rows")
        first, second = (
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip((start, constant), in_dims, strict=False)
        )
        return iterate(first, second, matrix, *rest), 0


def mixture_weights(ratios: Tensor, counted: Tensor, start: Tensor, iterations: int) -> Tensor:
    """As `fedade.kernels.reference.mixture_weights`."""
    result: Tensor = _Mixture.apply(ratios, counted, start, iterations)
    return result


class _Mixture(Function):
    """Without a gradient, as above."""

    @staticmethod
    def forward(ratios: Tensor, counted: Tensor, start: Tensor, iterations: int) -> Tensor:
        """Run all iterations; a program sees to one column of one batch."""
        samples, classes = ratios.shape[-2:]
        columns = counted.mT.expand(*ratios.shape[:-2], *counted.mT.shape[-2:]).contiguous()
        result = room(columns, columns.shape)
        programs, each = columns.numel() // classes, columns.shape[-2]
        blocks = triton.next_power_of_2(samples), triton.next_power_of_2(classes)
        launch(_mixtures, programs)(
            ratios.contiguous(), columns, start.contiguous(), result, iterations, each, samples, classes, *blocks
        )
        return result.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], ratios: Tensor, counted: Tensor, start: Tensor, iterations: int
    ) -> tuple[Tensor, int]:
        """Mapped batches are further ones; all begin alike."""
        if in_dims[2] is not None:
            raise NotImplementedError("one beginning for all batches")
        first, second = (
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip((ratios, counted), in_dims, strict=False)
        )
        missing = (1,) * (first.ndim - second.ndim)  # axes along which counts are the same stand behind the mapped one
        second = second.reshape(len(second), *missing, *second.shape[1:])
        return mixture_weights(first, second, start, iterations), 0


@triton.jit(do_not_specialize=["iterations", "columns", "samples"])
def _mixtures(
    ratios, counted, start, result, iterations, columns, samples,
    CLASSES: tl.constexpr, BLOCK_SAMPLES: tl.constexpr, BLOCK_CLASSES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    column = tl.program_id(0).to(tl.int64)
    batch = column // columns
    sample, entry = tl.arange(0, BLOCK_SAMPLES), tl.arange(0, BLOCK_CLASSES)
    known, inside = sample < samples, entry < CLASSES
    places = (batch * samples + sample)[:, None] * CLASSES + entry[None, :]
    own = tl.load(ratios + places, mask=known[:, None] & inside[None, :], other=0.0)
    added = tl.load(counted + column * CLASSES + entry, mask=inside, other=0.0)
    weights = tl.load(start + entry, mask=inside, other=0.0)
    for _ in range(iterations):
        likelihood = tl.sum(own * weights[None, :], axis=1)
        inverse = tl.where(known, 1.0 / tl.maximum(likelihood, SMALLEST), 0.0)
        masses = weights * tl.sum(own * inverse[:, None], axis=0) + added
        weights = masses / tl.sum(masses, axis=0)
    tl.store(result + column * CLASSES + entry, weights, mask=inside)


@triton.jit
def _iterations(
    start, constant, matrix, result, iterations,
    SHARE: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    entries = tl.arange(0, BLOCK)
    inside = entries < CLASSES
    cells = entries[:, None] * CLASSES + entries[None, :]
    weights = tl.load(matrix + cells, mask=inside[:, None] & inside[None, :], other=0.0)
    added = tl.load(constant + row * CLASSES + entries, mask=inside, other=0.0)
    state = tl.load(start + row * CLASSES + entries, mask=inside, other=0.0)
    for _ in range(iterations):
        column = tl.abs(state)[:, None]
        state = added + tl.sum(column * weights, axis=0) + SHARE * state
    tl.store(result + row * CLASSES + entries, state, mask=inside)
