"""Normalising pixels as an operation that `vmap` turns into one longer batch."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from fedade.kernels.grids import launch, room

BLOCK = 1024


def normalised(pixels: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """Images `[n, channels, height, width]` in channels-last memory."""
    result: Tensor = _Normalise.apply(pixels, mean, deviation, dtype)
    return result


class _Normalise(Function):
    """Without a gradient: pixels are whole numbers."""

    @staticmethod
    def forward(pixels: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
        """Run the kernel."""
        samples, channels, height, width = pixels.shape
        result = room(pixels, (samples, height, width, channels), dtype)
        size = height * width * channels
        blocks = triton.cdiv(size, BLOCK)
        launch(_normalise, blocks, samples)(
            pixels.contiguous(),
            mean.contiguous(),
            deviation.contiguous(),
            result,
            height * width,
            channels,
            blocks,
            BLOCK,
        )
        return result.permute(0, 3, 1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], pixels: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, int]:
        """Images of all clients are one batch."""
        if in_dims[1] is not None or in_dims[2] is not None:
            raise NotImplementedError("one mean and deviation for all clients")
        joined = pixels.movedim(in_dims[0] or 0, 0).flatten(0, 1)
        return normalised(joined, mean, deviation, dtype).unflatten(0, (info.batch_size, -1)), 0


@triton.jit(do_not_specialize=["blocks"])
def _normalise(pixels, mean, deviation, result, area, channels, blocks, BLOCK: tl.constexpr):  # noqa: N803
    sample = (tl.program_id(0) // blocks).to(tl.int64)
    place = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = place < area * channels
    channel = place % channels
    value = tl.load(pixels + sample * area * channels + channel * area + place // channels, mask=inside, other=0)
    centred = value.to(tl.float32) - tl.load(mean + channel, mask=inside, other=0.0)
    scaled = centred / tl.load(deviation + channel, mask=inside, other=1.0)
    tl.store(result + sample * area * channels + place, scaled.to(result.dtype.element_ty), mask=inside)
