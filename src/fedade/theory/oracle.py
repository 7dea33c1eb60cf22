"""What only a simulator can know of its clients: fresh labelled draws, true mean features, losses of comparators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedade.core.choices import StrictSettings
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.core.threads import to_device
from fedade.maths.priors.reweighting import reweight
from fedade.maths.signals.dynamics import directions
from fedade.parts.priors import calibrated_probabilities
from fedade.scenarios.streams import ShiftStreams
from fedade.theory.equations.logistic_head import fit_logistic_head, head_probabilities

View = tuple[str, int]
"""A corruption and its severity: how a client sees the pool."""

_CHUNK = 1000
"""Images of one forward pass; more would only cost memory."""
_VIEWS_KEPT = 16
"""Views of the pool whose features are kept."""


class TheorySettings(StrictSettings):
    """How much is measured; the rest of a run is looked at through its trace."""

    clients: int = Field(8, ge=1)
    """Clients whose losses and features are measured, drawn once."""
    timesteps: int = Field(40, ge=1)
    """Timesteps whose losses are measured: one at random from each of as many equal parts of the run."""
    samples: int = Field(500, ge=500)
    """Fresh labelled samples per client and timestep."""
    population: int = Field(2000, ge=1)
    """Images that stand for the pool where true mean features are computed; all of a smaller pool."""
    moment: Literal["post", "pre"] = "post"
    """Losses of the model after a timestep's adaptation, or of the one that came to it."""
    points: int = Field(3, ge=1)
    """Timesteps at which gradients and curvatures are measured."""


class Losses(NamedTuple):
    """Mean losses of every observed client at every observed timestep, `[c, t]`."""

    cross_entropy: Tensor
    error: Tensor

    @classmethod
    def over_time(cls, means: Sequence[tuple[Tensor, Tensor]]) -> "Losses":
        return cls(*(torch.stack(parts, -1) for parts in zip(*means, strict=True)))


def losses(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy and 0-1 loss of every sample. A probability below float32's resolution counts as that."""
    given = probabilities.double().gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    error = (probabilities.argmax(-1) != labels).double()
    return -given.clamp_min(torch.finfo(torch.float32).eps).log(), error


def mean_losses(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    cross_entropy, error = losses(probabilities, labels)
    return cross_entropy.mean(-1), error.mean(-1)


@dataclass(frozen=True)
class Oracle:
    """The truth of one scenario, for some of its clients and timesteps."""

    scenario: Scenario
    streams: ShiftStreams
    """The scenario's, whose pool is known."""
    settings: TheorySettings
    clients: NDArray[np.int64]
    """Who is observed."""
    timesteps: NDArray[np.int64]
    """When losses are measured."""
    weights: NDArray[np.float64]
    """How many timesteps each of these stands for."""
    _heads: dict[tuple[View, bytes], Tensor] = field(default_factory=dict)
    _features: dict[View, Tensor] = field(default_factory=dict)

    @property
    def deployment(self) -> Deployment:
        return self.scenario.deployment

    def fresh(self, timestep: int, purpose: str = "theory") -> Batch:
        """A labelled draw of Q_c^t for every observed client, independent of what the methods see."""
        sampling = self.streams.settings.model_copy(update={"samples": self.settings.samples})
        return replace(self.streams, settings=sampling).draw(self.clients, timestep, purpose)

    def priors(self, clients: NDArray[np.int64]) -> Tensor:
        """Q_c^0, ..., Q_c^T of some clients, `[C, T + 1, K]`."""
        times = range(self.streams.num_timesteps + 1)
        return torch.from_numpy(np.stack([self.streams.prior(clients, time) for time in times], 1))

    def views(self, timestep: int) -> list[View]:
        """How each observed client sees the pool."""
        names = self.streams.corruptions
        severities = self.streams.severity(self.clients, timestep).tolist()
        # A clean pool is one and the same for all.
        return [
            (names[client % len(names) if level else 0], level)
            for client, level in zip(self.clients.tolist(), severities, strict=True)
        ]

    def population(self, view: View) -> Tensor:
        """The inputs that stand for the pool, in the order of `population_rows`."""
        pool = self.streams.pool_at(*view)
        return pool[to_device(np.concatenate(self.population_rows), pool.device)]

    @cached_property
    def population_rows(self) -> list[NDArray[np.int64]]:
        """Rows of each class: always the same, so that what changes between timesteps is the law alone."""
        most = -(-self.settings.population // len(self.streams.rows_by_class))
        return [
            np.sort(Seeds(0).generator("population", label=label).permutation(rows)[:most])
            for label, rows in enumerate(self.streams.rows_by_class)
        ]

    def class_means(self, features: Tensor) -> Tensor:
        """Mean normalised feature of each class `[K, d]`, from features of the population."""
        sizes = [len(rows) for rows in self.population_rows]
        return torch.stack([part.mean(0) for part in torch.split(directions(features), sizes)])

    @cached_property
    def comparators(self) -> dict[str, Losses]:
        """Losses of what the method is held against, by its name in `COMPARATORS`."""
        return {"head_convex": self._losses(self._by_best_heads), "prior": self._losses(self._by_true_prior)}

    def _losses(self, rule: Callable[[int, Batch], Tensor]) -> Losses:
        return Losses.over_time([
            mean_losses(rule(timestep, batch := self.fresh(timestep)), batch.labels)
            for timestep in self.timesteps.tolist()
        ])  # fmt: skip

    def _by_true_prior(self, timestep: int, batch: Batch) -> Tensor:
        del timestep

        def probabilities(deployment: Deployment, inputs: Tensor) -> Tensor:
            return calibrated_probabilities(deployment, deployment.network.represent(deployment.parameters, inputs))

        return reweight(self._flat(probabilities, batch), batch.prior, self.deployment.source_prior)

    def _by_best_heads(self, timestep: int, batch: Batch) -> Tensor:
        features = self._flat(deployed_features, batch)
        truth = self.streams.prior(self.clients, timestep)
        heads = [self.best_head(view, prior) for view, prior in zip(self.views(timestep), truth, strict=True)]
        return torch.stack([head_probabilities(head, own) for head, own in zip(heads, features, strict=True)])

    def _flat(self, function: Callable[[Deployment, Tensor], Tensor], batch: Batch) -> Tensor:
        """A function of the deployed model on all clients' samples."""
        values = in_chunks(lambda inputs: function(self.deployment, inputs), batch.inputs.flatten(0, 1))
        return values.view(*batch.labels.shape, *values.shape[1:])

    def best_head(self, view: View, prior: NDArray[np.float64]) -> Tensor:
        """The fitted head of a law; laws return, so heads are kept."""
        key = (view, prior.tobytes())
        if key not in self._heads:
            features, labels = self._pool_features(view)
            self._heads[key] = fit_logistic_head(features, labels, torch.from_numpy(prior).to(features.device))
        return self._heads[key]

    def _pool_features(self, view: View) -> tuple[Tensor, Tensor]:
        by_class = self.streams.rows_by_class
        labels = np.repeat(np.arange(len(by_class)), [len(rows) for rows in by_class])
        if view not in self._features:
            if len(self._features) == _VIEWS_KEPT:
                self._features.clear()
            pool = self.streams.pool_at(*view)
            rows = to_device(np.concatenate(by_class), pool.device)
            self._features[view] = in_chunks(lambda chunk: deployed_features(self.deployment, pool[chunk]), rows)
        return self._features[view], to_device(labels, self.streams.device)


def deployed_features(deployment: Deployment, inputs: Tensor) -> Tensor:
    return deployment.network.summarise(deployment.network.represent(deployment.parameters, inputs))


def in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    return torch.cat([function(chunk) for chunk in torch.split(rows, _CHUNK)])


def oracle_of(scenario: Scenario, seed: int, clients: NDArray[np.int64], settings: TheorySettings) -> Oracle:
    """The oracle of a scenario; whom of these clients it observes, and when, is drawn from the run's seed."""
    streams = scenario.streams
    if not isinstance(streams, ShiftStreams):
        raise FedadeError(f"theory: {type(streams).__name__} does not tell its pool; use an image scenario")
    if streams.settings.stream not in ("drift", "own-pace"):
        raise FedadeError(
            f"theory: under scenario.stream {streams.settings.stream} clients do not all follow ω; use drift"
        )
    seeds = Seeds(seed)
    chosen = seeds.generator("theory-clients").permutation(clients)[: settings.clients]
    horizon = streams.num_timesteps
    edges = np.linspace(0, horizon, min(settings.timesteps, horizon) + 1).round().astype(int)
    places = seeds.generator("theory-timesteps").random(len(edges) - 1)
    timesteps = 1 + edges[:-1] + np.floor(places * np.diff(edges)).astype(int)
    return Oracle(scenario, streams, settings, np.sort(chosen), timesteps, np.diff(edges).astype(float))
