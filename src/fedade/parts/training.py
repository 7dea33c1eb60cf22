"""Gradient steps of one client on a label-free objective."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.func import grad

from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.method import ClientContext, Plan
from fedade.core.normalisation import FROZEN, Normalisation, RecordingStatistics, Statistics
from fedade.core.split import Layout, Parameters
from fedade.kernels import stepped
from fedade.maths.counter import permutation, uniform
from fedade.maths.losses import class_weights
from fedade.parts.norm_layers import follow
from fedade.parts.objectives import Examples, Material, Objective
from fedade.parts.optimisers import SGD, WHOLE, Minibatch, Minibatches, Optimiser, OptimiserState
from fedade.parts.rates import EVEN, Paces

Seen = dict[str, Statistics]
Features = dict[Examples, Tensor]
Step = TypeVar("Step")
Loss = Callable[[dict[str, Tensor], Step, Tensor], tuple[Tensor, Seen]]
"""From parameters, what a step reads and class frequencies: a loss, and the statistics that normalisation saw."""
Direction = Callable[[Tensor, Tensor, OptimiserState], tuple[Tensor, OptimiserState]]
"""From parameters, their gradient and an optimiser's state: what the rate multiplies, and the new state."""
PersonalStep = tuple[Minibatch, Features]
"""Its rows, and the features of those that were drawn."""
ReferenceDraws = Literal["epoch", "prior"]
"""What an epoch reads of the reference set: every row once, weighted by the prior; or as many rows as the stream's
batch has samples, drawn with the chances that the prior gives them."""


@dataclass(frozen=True)
class Training:
    """What one client descends in one round or timestep: an objective, by its plan's rate and prior."""

    ctx: ClientContext
    objective: Objective
    plan: Plan
    batch_size: int
    optimiser: Optimiser = SGD
    reference_draws: ReferenceDraws = "epoch"
    normalisation: Normalisation | None = FROZEN
    """None: training mode, in which passes use batch statistics and running ones follow with `momentum`."""
    momentum: float = 0.1
    mask: Tensor | None = None
    """Dropout on the stream's features, already scaled."""
    paces: Paces = EVEN
    anchor: float = 0.0
    """How strongly personal layers are pulled back to the deployed ones: anchor/2 · ‖φ − φ⁰‖² is added to the loss."""
    centred: bool = False
    """The personal step rests at the deployed φ⁰ while the prior is the source's μ0: ∇F̂_μ0(φ⁰) is taken off each
    gradient. It is zero but for the accidents of few labelled data, which are then not learnt."""
    keeps_body: bool = False
    """ψ is the deployed one, whose features of the labelled data are known."""

    @property
    def deployment(self) -> Deployment:
        return self.ctx.deployment

    @property
    def prior(self) -> Tensor:
        """Estimated class distribution of the batch; the source's, where the plan has none."""
        return self.plan.get("prior", self.deployment.source_prior)

    @property
    def rate(self) -> Tensor:
        return self.plan["learning_rate"]

    def steps(self, epochs: range) -> Minibatches:
        """The rows of every step of the numbered epochs, by the context's key."""
        key, samples = self.ctx.key, len(self.ctx.inputs)
        if self._draws_reference:
            weights = class_weights(self.prior, self.ctx.reference.labels)
            return prior_draws(key, weights, samples, epochs, self.batch_size)
        examples = examples_per_epoch(self.ctx.reference, self.objective, samples, self.reference_draws)
        return minibatches(key, examples, epochs, self.batch_size)

    def joint(
        self, moving: Parameters, fixed: Parameters, minibatches: Minibatches, state: OptimiserState
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """Steps on all of `moving` (eq:local_joint_update), on top of `fixed`."""
        return self._descend(self._loss_on(fixed), moving, minibatches, state)

    def _loss_on(self, fixed: Parameters) -> Loss[Minibatch]:
        """The loss of rows by whole passes."""

        def loss(moved: dict[str, Tensor], rows: Minibatch, prior: Tensor) -> tuple[Tensor, Seen]:
            recording, parameters = RecordingStatistics(), {**fixed, **moved}

            def logits(examples: Examples, chosen: Minibatch) -> Tensor:
                features = self._represent(parameters, self._inputs(examples)[chosen], recording)
                return self._classify(parameters, features, examples, chosen)

            return self.objective.loss(self._material(logits, prior), rows), recording.seen

        return loss

    def personal(
        self, personal: Parameters, fixed: Parameters, minibatches: Minibatches, state: OptimiserState
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """Steps on φ with ψ frozen (eq:local_personal_update); features are computed once if φ is the head."""
        if not all(name.startswith("head.") for name in personal):
            whole_passes = self._loss_on(fixed)
            at_rest = self._at_rest(whole_passes, personal, WHOLE)
            return self._descend(whole_passes, personal, minibatches, state, at_rest)
        whole = {
            examples: self._whole_features(fixed, examples)
            for examples in self.objective.examples
            if not (self._draws_reference and examples == "reference")
        }

        def loss(moved: dict[str, Tensor], step: PersonalStep, prior: Tensor) -> tuple[Tensor, Seen]:
            rows, drawn = step

            def logits(examples: Examples, chosen: Minibatch) -> Tensor:
                features = drawn[examples] if examples in drawn else whole[examples][chosen]
                return self._classify({**fixed, **moved}, features, examples, chosen)

            return self.objective.loss(self._material(logits, prior), rows), {}

        steps = zip(minibatches, self._drawn_features(fixed, minibatches), strict=True)
        return self._descend(loss, personal, steps, state, self._at_rest(loss, personal, (WHOLE, {})))

    def _at_rest(self, loss: Loss[Step], personal: Parameters, all_rows: Step) -> Tensor | None:
        """∇F̂_μ0(φ⁰) on all labelled data, where steps are centred."""
        if not self.centred:
            return None
        layout, deployed = Layout.by_name(personal), self.deployment.parameters
        start = layout.join({name: deployed[name] for name in personal})
        source = self.deployment.source_prior
        gradient: Tensor = grad(lambda joined: loss(layout.named(joined), all_rows, source), has_aux=True)(start)[0]
        return gradient

    def _descend(
        self,
        loss: Loss[Step],
        start: Parameters,
        steps: Iterable[Step],
        state: OptimiserState,
        at_rest: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """One step after the other, each of which makes one vector of all parameters; before the first they lie where
        they are, those that clients share but once. Statistics among them follow what was seen."""
        trainable = self.deployment.network.trainable()
        moving = {name: value for name, value in start.items() if name in trainable}
        statistics = {name: value for name, value in start.items() if name not in trainable}
        layout = Layout.by_name(moving)
        change = self._changed_gradient(layout, moving, at_rest)
        vector: Tensor | None = None
        for step in steps:
            gradients, seen = grad(
                lambda moved, step=step, fixed=statistics: loss(moved | fixed, step, self.prior), has_aux=True
            )(moving)
            if change is None:
                parts, slopes = ([tensors[name] for name in layout.shapes] for tensors in (moving, gradients))
                vector = stepped(parts, slopes, self.rate, vector)
            else:
                vector = layout.join(moving) if vector is None else vector
                direction, state = change(vector, layout.join(gradients), state)
                vector = torch.addcmul(vector, self.rate, direction, value=-1)
            moving = layout.named(vector)
            statistics = statistics | follow(statistics, seen, self.momentum)
        moved = moving | statistics
        return {name: moved[name] for name in start}, state

    def _changed_gradient(self, layout: Layout, moving: Parameters, at_rest: Tensor | None) -> Direction | None:
        """From a gradient to what the rate multiplies; None where that is the gradient itself."""
        pace = None if self.paces == EVEN else layout.join(self.paces.of(moving, self.deployment.split))
        if self.optimiser.is_plain and pace is None and at_rest is None and not self.anchor:
            return None
        if self.anchor:  # how strongly every entry is pulled, and where to
            personal, deployed = self.deployment.split.personal_part(moving), self.deployment.parameters
            strengths = {
                name: torch.full_like(value, self.anchor * (name in personal)) for name, value in moving.items()
            }
            strength, rest = layout.join(strengths), layout.join({name: deployed[name] for name in moving})

        def direction(vector: Tensor, gradient: Tensor, state: OptimiserState) -> tuple[Tensor, OptimiserState]:
            if at_rest is not None:
                gradient = gradient - at_rest
            if self.anchor:
                gradient = gradient + strength * (vector - rest)
            found, state = self.optimiser.direction(vector, gradient, state)
            return found if pace is None else found * pace, state

        return direction

    @property
    def _draws_reference(self) -> bool:
        return self.reference_draws == "prior" and self.objective.examples[0] == "reference"

    def _drawn_features(self, parameters: Parameters, minibatches: Minibatches) -> list[Features]:
        """Features of the drawn reference rows of every step, if they are drawn: in one pass over them alone."""
        drawn = [rows for rows in minibatches if isinstance(rows, Tensor)]
        if not self._draws_reference or not drawn:
            return [{} for _ in minibatches]
        inputs = self.ctx.reference.inputs[torch.cat(drawn)]
        features = self._represent(parameters, inputs, RecordingStatistics())
        return [{"reference": part} for part in torch.split(features, [len(rows) for rows in drawn])]

    def _inputs(self, examples: Examples) -> Tensor:
        return self.ctx.reference.inputs if examples == "reference" else self.ctx.inputs

    def _whole_features(self, parameters: Parameters, examples: Examples) -> Tensor:
        if self.keeps_body and examples == "reference":
            return self.ctx.reference_features
        return self._represent(parameters, self._inputs(examples), RecordingStatistics())

    def _represent(self, parameters: Parameters, inputs: Tensor, recording: RecordingStatistics) -> Tensor:
        normalisation = recording if self.normalisation is None else self.normalisation
        return self.deployment.network.represent(parameters, inputs, normalisation)

    def _classify(self, parameters: Parameters, features: Tensor, examples: Examples, rows: Minibatch) -> Tensor:
        if self.mask is not None and examples == "stream":
            features = dropped(features, self.mask[rows])
        return self.deployment.network.classify(parameters, features)

    def _material(self, logits: Callable[[Examples, Minibatch], Tensor], prior: Tensor) -> Material:
        labels, source = self.ctx.reference.labels, self.deployment.source_prior
        return Material(logits, labels, prior, source, self._draws_reference)


def minibatches(key: Tensor, size: int, epochs: range, batch_size: int) -> Minibatches:
    """The rows of every step of the numbered epochs: a fresh order for each, the whole set where one batch holds it."""
    if batch_size >= size:
        return [WHOLE for _ in epochs]
    return [rows for epoch in epochs for rows in torch.split(permutation(key, size, epoch), batch_size)]


def prior_draws(key: Tensor, weights: Tensor, samples: int, epochs: range, batch_size: int) -> Minibatches:
    """Reference rows of every step of the numbered epochs, drawn in proportion to their weight in F̂. The plain mean
    loss of such rows is an unbiased estimate of the estimated risk (eq:estimated_risk), at the cost of an epoch over
    the stream's batch rather than over the whole reference set."""
    size, cumulative = min(batch_size, samples), weights.cumsum(-1)
    count, total = math.ceil(samples / size) * size, cumulative[-1:]
    drawn: Minibatches = []
    for epoch in epochs:
        # By inversion of the cumulative weights; the second condition holds back what rounding has lifted to the total.
        targets = uniform(key, (count, 1), epoch).to(weights.dtype) * total
        drawn += torch.split(((targets >= cumulative) & (cumulative < total)).sum(-1), size)
    return drawn


def examples_per_epoch(
    reference: Reference | ReferenceRows, objective: Objective, samples: int, draws: ReferenceDraws
) -> int:
    """How many examples an epoch reads: the batch's samples, or as many; or the whole reference set."""
    return len(reference.labels) if objective.examples[0] == "reference" and draws == "epoch" else samples


def dropped(features: Tensor, mask: Tensor) -> Tensor:
    """Features times a mask `[n, d]`, which is the same for all tokens of a text."""
    return features * mask.reshape(len(mask), *(1,) * (features.ndim - 2), -1)
