"""Adam as pure functions, so that every client can have moments of its own."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.split import Parameters

_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class AdamMoments(NamedTuple):
    """Running moments of the gradients: twice the bytes of the parameters."""

    steps: Tensor
    first: dict[str, Tensor]
    second: dict[str, Tensor]


def adam_start(parameters: Parameters) -> AdamMoments:
    """Moments before the first step."""
    some = next(iter(parameters.values()))
    first = {name: torch.zeros_like(value) for name, value in parameters.items()}
    second = {name: torch.zeros_like(value) for name, value in parameters.items()}
    return AdamMoments(some.new_zeros(()), first, second)


def adam_step(
    parameters: Parameters, gradients: Parameters, moments: AdamMoments, learning_rate: float
) -> tuple[dict[str, Tensor], AdamMoments]:
    """One step of Algorithm 1 of Kingma and Ba (2015), with its constants."""
    steps = moments.steps + 1
    first = {name: torch.lerp(moments.first[name], slope, 1 - _FIRST_DECAY) for name, slope in gradients.items()}
    second = {
        name: torch.lerp(moments.second[name], slope.square(), 1 - _SECOND_DECAY) for name, slope in gradients.items()
    }
    first_share, second_share = 1 - _FIRST_DECAY**steps, 1 - _SECOND_DECAY**steps
    moved = {
        name: value - learning_rate * (first[name] / first_share) / ((second[name] / second_share).sqrt() + _EPSILON)
        for name, value in parameters.items()
    }
    return moved, AdamMoments(steps, first, second)
