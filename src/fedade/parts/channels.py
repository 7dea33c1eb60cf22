"""One half of a shift measure: follows the predictions, or the features, of a client's batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.tree import Tree
from fedade.maths import counter
from fedade.maths.signals import change_points, dynamics
from fedade.maths.signals.change_points import ClassRuns, FeatureRuns
from fedade.maths.signals.distances import class_costs, without_noise_floor
from fedade.maths.signals.dynamics import directions
from fedade.parts.last_layers import class_rows

KEPT = 32
"""Samples of the previous batch that measures of sets remember."""
SLOTS = 64
"""Longest run that change points are told apart by."""
HAZARD = 0.1
"""Chance of a change per timestep: 1/√T for the paper's T = 100."""
NUM_PROJECTIONS = 8
SMALLEST_VARIANCE = 1e-6
"""Least variance of a projected unit feature; below it a direction says nothing."""

_KEEP, _SPLIT = 0, 1
_FIXED_KEY = 0x5EED


class Channel(Protocol):
    """Remembers something of fixed size, and says how far each batch has moved."""

    @property
    def name(self) -> str:
        """As listings show it."""

    @property
    def capacity(self) -> int | None:
        """Most samples of a batch that it looks at; None for all."""

    def init(self, deployment: Deployment) -> Tree:
        """What it remembers before the first batch."""

    def update(self, deployment: Deployment, state: Tree, rows: Tensor, key: Tensor) -> tuple[Tree, Tensor]:
        """What it remembers after a batch `[n, ·]`, and a signal in [0, 1]."""


@dataclass(frozen=True)
class MeanSummary:
    """Distance of what two batches have in the mean."""

    name: str
    distance: Callable[..., Tensor]
    mean: Callable[[Tensor], Tensor]
    first: Callable[[Deployment], Tensor]
    """What stands for the batch before the first."""
    known: Callable[[Deployment], tuple[Tensor, ...]] = lambda _: ()
    """What else of the deployment the distance of two means reads; it refuses a model that has no such thing."""
    capacity: int | None = None

    def init(self, deployment: Deployment) -> Tensor:
        self.known(deployment)
        return self.first(deployment)

    def update(self, deployment: Deployment, state: Tensor, rows: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        current = self.mean(rows)
        return current, self.distance(state, current, *self.known(deployment))


@dataclass(frozen=True)
class FeatureSet:
    """Distance of two sets of normalised features; the first is of the reference set."""

    name: str
    distance: Callable[[Tensor, Tensor], Tensor]
    capacity: int = KEPT

    def init(self, deployment: Deployment) -> Tensor:
        key = torch.tensor(_FIXED_KEY, device=deployment.source_prior.device)
        return self._sample(_reference_features(deployment), key)

    def update(self, deployment: Deployment, state: Tensor, rows: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        current = self._sample(directions(rows), key)
        return current, self.distance(state, current)

    def _sample(self, features: Tensor, key: Tensor) -> Tensor:
        """As many features as are kept: a random choice of more, a repetition of fewer."""
        n = len(features)
        if n == self.capacity:
            return features
        order = counter.permutation(key, n, _KEEP)
        return features[order[torch.arange(self.capacity, device=order.device) % n]]


@dataclass(frozen=True)
class ClassChangePoint:
    """Probability that a batch's class counts begin a new segment; the first has seen q⁰ as often as the reference."""

    name: str = "P(new segment)"
    capacity: int | None = None

    def init(self, deployment: Deployment) -> ClassRuns:
        counts = len(deployment.reference.labels) * uniform_prior(deployment)
        return change_points.first_class_run(counts, SLOTS)

    def update(self, deployment: Deployment, state: ClassRuns, rows: Tensor, key: Tensor) -> tuple[ClassRuns, Tensor]:
        return change_points.follow_classes(state, rows.sum(0), HAZARD)


class FeatureSegments(NamedTuple):
    """Runs of projected mean features, and the deviations of the reference set that they are measured in."""

    runs: FeatureRuns
    deviations: Tensor


@dataclass(frozen=True)
class FeatureChangePoint:
    """Probability that a batch's mean feature begins a new segment, from eight fixed projections. Measured in
    deviations of a mean of n reference features, so a segment's noise has variance 1; the prior of a segment's mean is
    as wide as one feature, hence a precision of 1/n. Batches are taken to be equally large."""

    name: str = "P(new segment)"
    capacity: int | None = None

    def init(self, deployment: Deployment) -> FeatureSegments:
        axes = fixed_directions(NUM_PROJECTIONS, deployment.initial_feature)
        projected = _reference_features(deployment) @ axes.T
        deviations = projected.var(0, correction=0).clamp_min(SMALLEST_VARIANCE).sqrt()
        return FeatureSegments(change_points.first_feature_run(torch.zeros_like(deviations), SLOTS), deviations)

    def update(
        self, deployment: Deployment, state: FeatureSegments, rows: Tensor, key: Tensor
    ) -> tuple[FeatureSegments, Tensor]:
        n = len(rows)
        axes = fixed_directions(NUM_PROJECTIONS, deployment.initial_feature)
        moved = axes @ (dynamics.mean_feature(rows) - deployment.initial_feature)
        runs, signal = change_points.follow_features(state.runs, n**0.5 * moved / state.deviations, 1 / n, HAZARD)
        return state._replace(runs=runs), signal


class DebiasedState(NamedTuple):
    """What the channel remembers, and the noise floor of the previous batch."""

    inner: Tree
    floor: Tensor


@dataclass(frozen=True)
class Debiased:
    """A channel whose signal counts only beyond the noise of finite batches."""

    inner: Channel

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capacity(self) -> int | None:
        return self.inner.capacity

    def init(self, deployment: Deployment) -> DebiasedState:
        return DebiasedState(self.inner.init(deployment), torch.zeros_like(deployment.accuracy))

    def update(
        self, deployment: Deployment, state: DebiasedState, rows: Tensor, key: Tensor
    ) -> tuple[DebiasedState, Tensor]:
        remembered, signal = self.inner.update(deployment, state.inner, rows, key)
        # The floor is the signal of one random half after the other; 0 for a single sample, which has no halves.
        size, floor = min(len(rows), self.capacity or len(rows)) // 2, torch.zeros_like(state.floor)
        if size:
            order = counter.permutation(key, len(rows), _SPLIT)
            between, _ = self.inner.update(deployment, state.inner, rows[order[:size]], key)
            floor = self.inner.update(deployment, between, rows[order[size : 2 * size]], key)[1]
        return DebiasedState(remembered, floor), without_noise_floor(signal, state.floor, floor)


def fixed_directions(count: int, like: Tensor) -> Tensor:
    """Random unit vectors `[count, d]` of a feature's dimension, the same for everyone at all times."""
    key = torch.tensor(_FIXED_KEY, device=like.device)
    return directions(counter.normal(key, (count, len(like)))).to(like.dtype)


def uniform_prior(deployment: Deployment) -> Tensor:
    """q⁰."""
    return torch.full_like(deployment.source_prior, 1 / deployment.num_classes)


def costs_between_classes(deployment: Deployment) -> tuple[Tensor]:
    """By which classes with similar classifier rows are close."""
    rows = class_rows(deployment)
    if rows is None:
        raise FedadeError("measure: 'wasserstein' needs a linear last layer to compare classes by; use js")
    return (class_costs(rows),)


def _reference_features(deployment: Deployment) -> Tensor:
    return directions(deployment.network.summarise(deployment.reference_features))
