"""A finished run once more, with the models in hand: runs are deterministic, so a trace can be looked behind."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import tree
from fedade.core.context import context_before_first_batch
from fedade.core.scenario import Batch
from fedade.engine.clock import Clock, World
from fedade.engine.steps import ClientMap
from fedade.maths.signals import dynamics
from fedade.theory.landscape import ClientModels, Landscape, Slopes, Steepness, client_models
from fedade.theory.oracle import Losses, Oracle, deployed_features, in_chunks, losses, mean_losses


class Summaries(NamedTuple):
    """What the signals compare, of every observed client and from t = 0 on, `[c, T + 1, ...]`. Features are NaN where a
    method's state does not show its model."""

    prediction: Tensor
    """q: mean prediction on the stream's batch, before the timestep's rounds."""
    prediction_floor: Tensor
    """S_unc of the two halves of that batch."""
    feature: Tensor
    """z"""
    feature_floor: Tensor
    """S_rep of the two halves."""
    true_feature: Tensor
    """z̄: expected z under the true law and the same parameters."""


class Replay(NamedTuple):
    """What was seen."""

    accuracy_post: NDArray[Any]
    """Accuracies of the clients that the trace has, in their order, `[N, T]`."""
    summaries: Summaries
    losses: Losses
    loss_bound: float  # B
    radius: float
    """Γ, NaN where no model is shown."""
    steepness: Steepness | None
    """The largest over the measured timesteps; None where no model is shown that moves."""
    slopes: list[Slopes]
    """Before and after the rounds of each measured timestep, in turn."""


def replay(clock: Clock, oracle: Oracle, probing: ClientMap) -> Replay:
    """Run a clock again and look at the observed clients; `probing` maps functions over them."""
    with torch.no_grad():
        looking = _Looking(clock, oracle, probing)
        world = clock.beginning()
        stepping = clock.run(world)
        for timestep in range(1, clock.num_timesteps + 1):
            looking.before(world, timestep)
            rows = next(stepping)
            looking.accuracies.append(rows["accuracy_post"][np.argsort(rows["client"])])
            looking.after(world, timestep)
        return looking.seen()


class _Looking:
    """Gathers what is seen while time passes."""

    def __init__(self, clock: Clock, oracle: Oracle, probing: ClientMap) -> None:
        self.clock, self.oracle, self.probing = clock, oracle, probing
        self.rows = torch.from_numpy(oracle.clients)
        self.times = set(oracle.timesteps.tolist())
        places = np.linspace(0, len(oracle.timesteps) - 1, oracle.settings.points).round().astype(int)
        self.landscape_times = set(oracle.timesteps[places].tolist())
        self.accuracies: list[NDArray[Any]] = []
        self.summaries = [self._start()]
        self.means: list[tuple[Tensor, Tensor]] = []
        self.samples: list[Tensor] = []
        self.distances: list[float] = []
        self.steepness: list[Steepness] = []
        self.slopes: list[Slopes] = []

    def before(self, world: World, timestep: int) -> None:
        clients, server, models = self._standing(world)
        batch = self.oracle.streams.draw(self.oracle.clients, timestep)
        self.summaries.append(self._summaries(clients, server, models, batch, timestep))
        if self.oracle.settings.moment == "pre":
            self._measure(clients, server, timestep)
        self._slopes(models, timestep)

    def after(self, world: World, timestep: int) -> None:
        clients, server, models = self._standing(world)
        if self.oracle.settings.moment == "post":
            self._measure(clients, server, timestep)
        if models is not None and models.moves:
            self.distances.append(float(models.distances(len(self.rows)).max()))
        land = self._slopes(models, timestep)
        if land is not None:
            self.steepness.append(land.steepness())

    def seen(self) -> Replay:
        return Replay(
            np.stack(self.accuracies, 1),
            Summaries(*(torch.stack(parts, 1) for parts in zip(*self.summaries, strict=True))),
            Losses.over_time(self.means),
            float(np.quantile(torch.cat(self.samples).cpu().numpy(), 0.999)),
            2 * max(self.distances, default=math.nan),
            Steepness(*map(max, zip(*self.steepness, strict=True))) if self.steepness else None,
            self.slopes,
        )

    def _slopes(self, models: ClientModels | None, timestep: int) -> Landscape | None:
        """The landscape of a measured timestep, whose slopes are noted."""
        if models is None or not models.moves or timestep not in self.landscape_times:
            return None
        land = Landscape(models, self.oracle.fresh(timestep))
        self.slopes.append(land.slopes())
        return land

    def _standing(self, world: World) -> tuple[tree.Tree, tree.Tree, ClientModels | None]:
        """States of the observed clients and of the server, of the only federation, and the models in them."""
        clients, server = tree.take(tree.take(world.clients, 0), self.rows), tree.take(world.server, 0)
        return clients, server, client_models(self.oracle.deployment, clients, server)

    def _predictions(self, clients: tree.Tree, server: tree.Tree, inputs: Tensor) -> Tensor:
        method, before = self.clock.method, context_before_first_batch(self.oracle.deployment)
        predictions: Tensor = self.probing(
            lambda client, own: method.predict(replace(before, inputs=own, shared=server, passes={}), client),
            clients,
            inputs,
        )
        return predictions.float()

    def _measure(self, clients: tree.Tree, server: tree.Tree, timestep: int) -> None:
        if timestep not in self.times:
            return
        batch = self.oracle.fresh(timestep)
        predictions = self._predictions(clients, server, batch.inputs)
        self.means.append(mean_losses(predictions, batch.labels))
        self.samples.append(losses(predictions, batch.labels)[0].flatten())

    def _start(self) -> Summaries:
        """t = 0, where q is uniform and z that of the reference set, as Fed-ADE has them."""
        deployment, count = self.oracle.deployment, len(self.rows)
        uniform = torch.full_like(deployment.source_prior, 1 / deployment.num_classes)
        feature = deployment.initial_feature
        nothing = torch.zeros(count, device=feature.device)
        expected = self._true_features(ClientModels(deployment, {}, {}), 0)
        return Summaries(uniform.expand(count, -1), nothing, feature.expand(count, -1), nothing, expected)

    def _summaries(
        self, clients: tree.Tree, server: tree.Tree, models: ClientModels | None, batch: Batch, timestep: int
    ) -> Summaries:
        predictions = self._predictions(clients, server, batch.inputs)
        unknown = torch.full_like(predictions[:, 0, 0], torch.nan)
        hidden = unknown.unsqueeze(-1).expand(-1, len(self.oracle.deployment.initial_feature))
        feature, feature_floor, true_feature = hidden, unknown, hidden
        if models is not None:
            features = self._features(models, batch.inputs)
            feature = dynamics.mean_feature(features)
            feature_floor = dynamics.representation_dynamics(*map(dynamics.mean_feature, _halves(features)))
            true_feature = self._true_features(models, timestep)
        floor = dynamics.uncertainty_dynamics(*map(dynamics.mean_prediction, _halves(predictions)))
        return Summaries(dynamics.mean_prediction(predictions), floor, feature, feature_floor, true_feature)

    def _features(self, models: ClientModels, inputs: Tensor) -> Tensor:
        network = self.oracle.deployment.network
        features: Tensor = self.probing(
            lambda own, seen: network.summarise(network.represent(models.model_with(own), seen)), models.own, inputs
        )
        return features.float()

    def _true_features(self, models: ClientModels, timestep: int) -> Tensor:
        """z̄ of every observed client: class means of the population, weighted by the true prior."""
        views = self.oracle.views(timestep)
        if not any(name.startswith("body.") for name in models.own):  # one body for all
            common = replace(self.oracle.deployment, parameters=models.model_with({}))
            features = {
                view: in_chunks(lambda inputs: deployed_features(common, inputs), self.oracle.population(view))
                for view in dict.fromkeys(views)
            }
            classes = torch.stack([self.oracle.class_means(features[view].float()) for view in views])
        else:
            inputs = torch.stack([self.oracle.population(view) for view in views])
            classes = torch.stack([self.oracle.class_means(own) for own in self._features(models, inputs)])
        prior = torch.from_numpy(self.oracle.streams.prior(self.oracle.clients, timestep)).to(classes)
        return (prior.unsqueeze(-1) * classes).sum(-2)


def _halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Two halves of every client's batch; samples are independent, so any two are random. One sample is its own."""
    middle = rows.shape[1] // 2
    return (rows[:, :middle], rows[:, middle : 2 * middle]) if middle else (rows, rows)
