"""Gradient steps of one client on a label-free objective."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Normalisation, Recording, Statistics
from fedade.core.split import Parameters
from fedade.maths.counter import permutation
from fedade.parts.objectives import Examples, Material, Objective
from fedade.parts.statistics import follow
from fedade.parts.vectors import Layout

Seen = dict[str, Statistics]
Loss = Callable[[dict[str, Tensor], Tensor | None], tuple[Tensor, Seen]]
"""Of parameters and rows: a loss, and the statistics that normalisation layers saw."""
Minibatches = list[Tensor | None]
"""Rows of each step; None stands for the whole set."""


@dataclass(frozen=True)
class Training:
    """What one client descends in one timestep, at its own rate; plain SGD, as in the paper."""

    deployment: Deployment
    objective: Objective
    inputs: Tensor
    """The stream's batch."""
    prior: Tensor
    rate: Tensor
    normalisation: Normalisation | None
    """None: training mode, in which passes use batch statistics and running ones follow with `momentum`."""
    momentum: float = 0.1
    mask: Tensor | None = None
    """Dropout on the stream's features, already scaled."""

    def joint(self, moving: Parameters, fixed: Parameters, minibatches: Minibatches) -> dict[str, Tensor]:
        """Steps on all of `moving` (eq:local_joint_update), on top of `fixed`."""

        def loss(moved: dict[str, Tensor], rows: Tensor | None) -> tuple[Tensor, Seen]:
            recording, parameters = Recording(), {**fixed, **moved}

            def logits(examples: Examples, chosen: Tensor | None) -> Tensor:
                features = self._represent(parameters, _rows(self._inputs(examples), chosen), recording)
                return self._classify(parameters, features, examples, chosen)

            return self.objective.loss(self._material(logits), rows), recording.seen

        return self._descend(loss, moving, minibatches)

    def personal(self, personal: Parameters, fixed: Parameters, minibatches: Minibatches) -> dict[str, Tensor]:
        """Steps on φ with ψ frozen (eq:local_personal_update); features are computed once if φ is the head."""
        if not all(name.startswith("head.") for name in personal):
            return self.joint(personal, fixed, minibatches)
        features = {
            examples: self._represent(fixed, self._inputs(examples), Recording())
            for examples in self.objective.examples
        }

        def loss(moved: dict[str, Tensor], rows: Tensor | None) -> tuple[Tensor, Seen]:
            def logits(examples: Examples, chosen: Tensor | None) -> Tensor:
                return self._classify({**fixed, **moved}, _rows(features[examples], chosen), examples, chosen)

            return self.objective.loss(self._material(logits), rows), {}

        return self._descend(loss, personal, minibatches)

    def _descend(self, loss: Loss, start: Parameters, minibatches: Minibatches) -> dict[str, Tensor]:
        """One step per minibatch, on all parameters as one vector."""
        layout = Layout.of(start)
        vector = layout.join(start)
        for rows in minibatches:
            gradient, seen = grad(lambda joined, rows=rows: loss(layout.named(joined), rows), has_aux=True)(vector)
            vector = torch.addcmul(vector, self.rate, gradient, value=-1)
            if seen:
                after = layout.named(vector)
                vector = layout.join(after | follow(after, seen, self.momentum))
        return layout.named(vector)

    def _inputs(self, examples: Examples) -> Tensor:
        return self.deployment.reference.inputs if examples == "reference" else self.inputs

    def _represent(self, parameters: Parameters, inputs: Tensor, recording: Recording) -> Tensor:
        normalisation = recording if self.normalisation is None else self.normalisation
        return self.deployment.network.represent(parameters, inputs, normalisation)

    def _classify(self, parameters: Parameters, features: Tensor, examples: Examples, rows: Tensor | None) -> Tensor:
        if self.mask is not None and examples == "stream":
            features = features * _rows(self.mask, rows)
        return self.deployment.network.classify(parameters, features)

    def _material(self, logits: Callable[[Examples, Tensor | None], Tensor]) -> Material:
        return Material(logits, self.deployment.reference.labels, self.prior)


def minibatches(key: Tensor, size: int, epochs: range, batch_size: int) -> Minibatches:
    """The rows of every step of the numbered epochs: a fresh order for each, the whole set where one batch holds it."""
    if batch_size >= size:
        return [None for _ in epochs]
    return [rows for epoch in epochs for rows in torch.split(permutation(key, size, epoch), batch_size)]


def num_examples(deployment: Deployment, objective: Objective, samples: int) -> int:
    """Size of the set that an objective's minibatches are rows of."""
    return len(deployment.reference.labels) if objective.examples[0] == "reference" else samples


def _rows(values: Tensor, rows: Tensor | None) -> Tensor:
    return values if rows is None else values[rows]
