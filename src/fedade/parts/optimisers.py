"""From gradients to the direction of a step: as they are (SGD) or by AdamW, and clipped where asked.

A direction is what the learning rate multiplies. States are tensors, so that every client has its own.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.choices import StrictSettings
from fedade.core.split import Layout, Parameters

_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8

Minibatch = Tensor | slice
"""Rows that a step reads."""
Minibatches = list[Minibatch]
WHOLE = slice(None)
"""All rows of a set."""


class Moments(NamedTuple):
    """Running moments of the gradients: twice the bytes of what moves."""

    steps: Tensor
    first: Tensor
    second: Tensor


class Velocity(NamedTuple):
    """A running sum of the gradients: the bytes of what moves."""

    value: Tensor


OptimiserState = Moments | Velocity | tuple[()]
"""What an optimiser remembers of the gradients of one client: nothing, for plain SGD."""


class Learner(NamedTuple):
    """What a client keeps: tensors of its own, and what its optimiser remembers."""

    own: dict[str, Tensor]
    state: OptimiserState


class PhaseStates(NamedTuple):
    """States of the optimisers of the joint and of the personal step, which are two."""

    joint: OptimiserState
    personal: OptimiserState


class Optimiser(StrictSettings):
    """How a client turns gradients into steps."""

    name: Literal["sgd", "adamw"] = "sgd"
    """Plain gradients, or AdamW with moments that each client keeps."""
    clip: float | None = Field(None, gt=0)
    """Longest gradient of a client, all its tensors taken together; a longer one is shortened to this."""
    weight_decay: float = Field(0.0, ge=0)
    """Share of each weight, times the learning rate, that a step takes away (decoupled: it is not in the gradient)."""

    def start(self, moving: Parameters) -> OptimiserState:
        if self.name == "sgd" or not moving:
            return ()
        zeros = torch.zeros_like(Layout.by_name(moving).join(moving))
        return Moments(zeros.new_zeros(()), zeros, zeros)

    def direction(self, vector: Tensor, gradient: Tensor, state: OptimiserState) -> tuple[Tensor, OptimiserState]:
        """What to multiply by the learning rate and subtract, and the state after the step."""
        direction = gradient if self.clip is None else clipped(gradient, self.clip)
        if isinstance(state, Moments):
            direction, state = adam_direction(direction, state)
        return (direction + self.weight_decay * vector if self.weight_decay else direction), state

    def directions(
        self, moving: Parameters, gradients: Parameters, state: OptimiserState
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """What to multiply by the learning rate and subtract from each tensor, and the state after the step."""
        if self.is_plain:
            return dict(gradients), state
        layout = Layout.by_name(moving)
        direction, state = self.direction(layout.join(moving), layout.join(gradients), state)
        return layout.named(direction), state

    @property
    def is_plain(self) -> bool:
        """Whether a gradient is the direction."""
        return self.name == "sgd" and self.clip is None and not self.weight_decay


SGD = Optimiser()
"""Plain gradient descent, as in the paper's image experiments."""


class AdamOptimiser(Optimiser):
    """For methods that were published with Adam, which AdamW without weight decay is."""

    name: Literal["sgd", "adamw"] = "adamw"


class MomentumOptimiser(Optimiser):
    """For methods that were published with SGD and momentum; AdamW has its own."""

    momentum: float = Field(0.9, ge=0, lt=1)
    """Share of its velocity that a step keeps."""

    def start(self, moving: Parameters) -> OptimiserState:
        if self.name != "sgd":
            return super().start(moving)
        return Velocity(torch.zeros_like(Layout.by_name(moving).join(moving)))

    def direction(self, vector: Tensor, gradient: Tensor, state: OptimiserState) -> tuple[Tensor, OptimiserState]:
        """The velocity after this gradient: v <- momentum v + gradient."""
        if not isinstance(state, Velocity):
            return super().direction(vector, gradient, state)
        plain, _ = super().direction(vector, gradient, ())
        velocity = self.momentum * state.value + plain
        return velocity, Velocity(velocity)

    @property
    def is_plain(self) -> bool:
        return False


def adam_direction(gradient: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
    """m̂ / (√v̂ + ε): Algorithm 1 of Kingma and Ba (2015), with its constants."""
    steps = moments.steps + 1
    first = torch.lerp(moments.first, gradient, 1 - _FIRST_DECAY)
    second = torch.lerp(moments.second, gradient.square(), 1 - _SECOND_DECAY)
    first_share, second_share = 1 - _FIRST_DECAY**steps, 1 - _SECOND_DECAY**steps
    return (first / first_share) / ((second / second_share).sqrt() + _EPSILON), Moments(steps, first, second)


def clipped(gradient: Tensor, longest: float) -> Tensor:
    """The gradient, shortened to a length if it is longer (Pascanu et al., 2013)."""
    length: Tensor = torch.linalg.vector_norm(gradient)
    return gradient * (longest / length).clamp_max(1)


def descend(
    loss: Callable[[dict[str, Tensor], Minibatch], Tensor],
    parameters: Mapping[str, Tensor],
    rate: Tensor,
    minibatches: Minibatches,
    optimiser: Optimiser,
    state: OptimiserState,
) -> tuple[dict[str, Tensor], OptimiserState]:
    """Steps on the loss of a minibatch's rows, where a method's loss needs more than logits."""
    moved = dict(parameters)
    for rows in minibatches:
        directions, state = optimiser.directions(moved, grad(loss)(moved, rows), state)
        moved = {name: value - rate * directions[name] for name, value in moved.items()}
    return moved, state
