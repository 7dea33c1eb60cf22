"""Descending the loss of given labels: an oracle's, or those that a model gave itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.func import grad

from fedade.maths.losses import weighted_cross_entropy
from fedade.parts.objectives import Examples, Material
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.training import Minibatches

LabelSource = Literal["unsup", "oracle"]
"""Whether a method that was made for labelled streams runs as its label-free port or as the original."""


@dataclass(frozen=True)
class LabelledSamples:
    """An objective: cross-entropy to labels of the stream's samples, each with a weight."""

    labels: Tensor
    weights: Tensor

    @property
    def examples(self) -> tuple[Examples, ...]:
        return ("stream",)

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        labels, weights = (self.labels, self.weights) if rows is None else (self.labels[rows], self.weights[rows])
        return weighted_cross_entropy(material.logits("stream", rows), labels, weights)


def descend(
    loss: Callable[[dict[str, Tensor], Tensor | None], Tensor],
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
