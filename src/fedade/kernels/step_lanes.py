# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""A gradient step on all parameters of many clients: parameters and gradients are read once, where they lie, and the
new parameters are written once, as one vector per client.

Everything has a lane axis in front; a tensor with one lane is shared by all.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fedade.kernels.grids import launch, room
from fedade.kernels.lanes import Dims, LaneGradient, as_lanes, dense_lanes, lane_strides, mapped_again
from fedade.kernels.packing import ALIGNED

TENSORS_AT_ONCE = 80
"""What a kernel is told of them has to fit into the 4 KB that older drivers take as its arguments."""
BLOCK = 4096
"""Numbers of a tensor that a program moves."""
AT_ONCE = 4
"""Numbers that a thread reads and writes together, where they lie so."""


def stepped(parameters: Sequence[Tensor], gradients: Sequence[Tensor], rate: Tensor) -> Tensor:
    """Parameters - rate x gradients of one client, one tensor behind the other."""
    both = [*parameters, *gradients]
    moved: tuple[Tensor] = GradientStep.apply(rate.reshape(1), *(value.reshape(1, -1) for value in both))
    return moved[0].squeeze(0)


class GradientStep(LaneGradient):
    """Rates `[lanes]`, parameters and then as many gradients `[lanes, numbers]` in; new parameters out."""

    @staticmethod
    def forward(rate: Tensor, *tensors: Tensor) -> tuple[Tensor]:
        """Run the kernel."""
        dense = [dense_lanes(tensor) for tensor in tensors]
        half, lanes = len(dense) // 2, max(map(len, (rate, *dense)))
        parameters, gradients = dense[:half], dense[half:]
        sizes = [parameter.shape[1] for parameter in parameters]
        total, places = sum(sizes), [0, *accumulate(sizes)]
        # With lanes that begin where memory is read best, whatever the number of parameters.
        result = room(parameters[0], (lanes, -(-total // ALIGNED) * ALIGNED))
        for begin in range(0, half, TENSORS_AT_ONCE):
            some = range(begin, min(begin + TENSORS_AT_ONCE, half))
            target = result[:, places[some.start] : places[some.stop]]
            rows, first = [], 0
            for number in some:
                end = first + lanes * -(-sizes[number] // BLOCK)
                both = parameters[number], gradients[number]
                numbers = *lane_strides(both), sizes[number], places[number] - places[begin]
                together = not any(count % AT_ONCE for count in (*numbers, places[begin]))
                together = together and not any(tensor.data_ptr() % (AT_ONCE * 4) for tensor in both)
                rows.append((first, end, *both, *numbers, int(together)))
                first = end
            rates = 0 if len(rate) == 1 else rate.stride(0)
            launch(step_kernel, first)(tuple(rows), rate, target, rates, result.shape[1], len(rows), BLOCK)
        return (result[:, :total],)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Dims]:
        """Clients are lanes."""
        return mapped_again(info.batch_size, GradientStep.apply(*as_lanes(info.batch_size, in_dims, tensors)))


@triton.jit(do_not_specialize=["tensors", "rates", "result_lane"])
def step_kernel(tensors, rate, result, rates, result_lane, TENSORS: tl.constexpr, BLOCK: tl.constexpr):
    """One program per tensor, lane and block of its numbers."""
    program = tl.program_id(0)
    for number in tl.static_range(TENSORS):
        if (program >= tensors[number][0]) & (program < tensors[number][1]):
            _step(program - tensors[number][0], *tensors[number][2:], rate, result, rates, result_lane, BLOCK)


@triton.jit(noinline=True)
def _step(
    program, parameter, gradient, parameter_lane, gradient_lane, size, place, together, rate, result, rates,
    result_lane, BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = (size + BLOCK - 1) // BLOCK
    lane, own = (program // blocks).to(tl.int64), program % blocks * BLOCK + tl.arange(0, BLOCK)
    parameter += lane * parameter_lane
    gradient += lane * gradient_lane
    result += lane * result_lane + place
    pace = tl.load(rate + lane * rates)
    if together != 0:
        there = own < size // 4 * 4  # which says to the compiler that four are inside, or none
        before = tl.load(tl.multiple_of(parameter + own, 16), mask=there, other=0.0)
        slope = tl.load(tl.multiple_of(gradient + own, 16), mask=there, other=0.0)
        tl.store(tl.multiple_of(result + own, 16), before - pace * slope, mask=there)
    else:
        there = own < size
        before = tl.load(parameter + own, mask=there, other=0.0)
        slope = tl.load(gradient + own, mask=there, other=0.0)
        tl.store(result + own, before - pace * slope, mask=there)
