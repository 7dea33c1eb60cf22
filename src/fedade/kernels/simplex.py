"""A solver's many tiny iterations as one kernel: on a GPU every one of them would be four launches."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room


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
