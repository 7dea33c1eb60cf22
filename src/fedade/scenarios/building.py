"""From settings to a scenario."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.precision import Precision
from fedade.core.scenario import ClientReferences, Scenario
from fedade.core.seeds import Seeds
from fedade.data.dataset import Dataset, tokenised
from fedade.data.registry import load, load_texts
from fedade.models.text import is_text, tokeniser
from fedade.scenarios.deploying import deploy
from fedade.scenarios.own_models import is_measured
from fedade.scenarios.partition import COMMON, client_rows, partition
from fedade.scenarios.pools import PoolAt, PoolFeatures, corruption_names, pool_under_corruption
from fedade.scenarios.pretraining import TrainingProgress
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.stream_laws import STREAMS
from fedade.scenarios.streams import Ints, initial_priors, target_priors


def load_dataset(settings: ScenarioSettings, cache: Path) -> Dataset:
    """The dataset as its model reads it: images, or texts as rows of tokens."""
    if not is_text(settings.model):
        return load(settings.dataset, settings.data_dir)
    if settings.shifts_inputs:
        raise FedadeError(
            f"scenario.kind: {settings.kind} corrupts images, texts have no corruptions; choose label or none"
        )
    texts = load_texts(settings.dataset, settings.data_dir, settings.text.input)
    return tokenised(texts, tokeniser(settings.model), settings.text.max_tokens, cache / "tokens")


def build_deployment(settings: ScenarioSettings, device: str, cache: Path, progress: TrainingProgress) -> Deployment:
    dataset = load_dataset(settings, cache)
    return deploy(dataset, partition(dataset, settings), settings, device, cache / "models", progress)


@dataclass(frozen=True)
class Testbed:
    """What scenarios of all seeds and schedules have in common: a deployed model, and the examples to stream."""

    settings: ScenarioSettings
    deployment: Deployment
    pool_at: PoolAt
    rows_by_class: tuple[Ints, ...]
    corruptions: tuple[str, ...]
    held_out: Reference
    """Labelled, never trained on and never streamed: clients' own labelled data are drawn from it."""
    device: str
    identity: Mapping[str, str]
    """Digests of the deployed weights and of the examples."""
    features: PoolFeatures = field(default_factory=PoolFeatures)
    """What the deployed body makes of the examples, as far as anybody has asked."""
    held_out_features: PoolFeatures = field(default_factory=PoolFeatures)
    """What the deployed body makes of the held-out data, as far as anybody has asked."""

    def scenario(self, schedule: str, seed: int) -> Scenario:
        """The deployment, the streams of a schedule and a seed, and the clients' own labelled data."""
        settings, seeds = self.settings.model_copy(update={"schedule": schedule}), Seeds(seed)
        num_classes = self.deployment.num_classes
        law = STREAMS[settings.stream]
        streams = law(
            settings=settings,
            seeds=seeds,
            pool_at=self.pool_at,
            rows_by_class=self.rows_by_class,
            initial_priors=initial_priors(settings, seeds, num_classes),
            target_priors=target_priors(settings, seeds, num_classes),
            schedule=law.schedules(settings, seeds),
            corruptions=self.corruptions,
            device=self.device,
            features=self.features,
        )
        if settings.reference == "common":
            return Scenario(self.deployment, streams)
        labels = self.held_out.labels.cpu().numpy()
        drawn = client_rows(labels, num_classes, settings.num_clients, settings.reference_size, seeds)
        rows = torch.from_numpy(drawn.rows).to(self.device)
        return Scenario(self.deployment, streams, ClientReferences(self.held_out, rows, self._held_out_features))

    def _held_out_features(self, deployment: Deployment) -> Tensor:
        inputs = self.held_out.inputs
        return self.held_out_features.of(deployment, lambda *_: inputs, "held out", 0, np.arange(len(inputs)))


def build_testbed(
    settings: ScenarioSettings, device: str, cache: Path, progress: TrainingProgress, precision: Precision = "float32"
) -> Testbed:
    """The testbed of some settings, whatever their schedule; `cache` keeps what is costly to make."""
    dataset = load_dataset(settings, cache)
    parts = partition(dataset, settings)
    rows_by_class = tuple(np.flatnonzero(parts.pool.labels == label) for label in range(dataset.num_classes))
    for label, rows in enumerate(rows_by_class):
        if not len(rows):
            raise FedadeError(f"{dataset.name}: class {dataset.class_names[label]!r} has no example to stream; add one")
    corruptions = corruption_names(dataset, settings)
    labelled_data = "common"
    if settings.reference == "own":
        wanted = settings.num_clients, settings.reference_size
        remedy = "" if is_measured(settings) else COMMON
        drawn = client_rows(parts.held_out.labels, dataset.num_classes, *wanted, Seeds(0), remedy)
        labelled_data = "own, disjoint" if drawn.disjoint else "own, overlapping"
    for seed_dependent in (initial_priors, target_priors):  # what no seed could draw is refused before training
        seed_dependent(settings, Seeds(0), dataset.num_classes)
    deployment = deploy(dataset, parts, settings, device, cache / "models", progress).computing_in(precision)
    pool_at = pool_under_corruption(dataset, parts.pool, settings, cache / "corrupted", device)
    identity = {
        "weights": digest(*tensor_bytes(deployment.parameters)),
        "data": digest(parts.pool.labels, parts.pool.inputs[:]),
        "labelled data": labelled_data,
    }

    @remember
    def encoded(corruption: str, severity: int) -> Tensor:
        """The pools after the layers that no client ever moves, computed once."""
        return deployment.network.encode(pool_at(corruption, severity))

    held_out = Reference(
        deployment.network.encode(torch.from_numpy(np.array(parts.held_out.inputs[:])).to(device)),
        torch.from_numpy(np.array(parts.held_out.labels)).to(device),
    )
    return Testbed(settings, deployment, encoded, rows_by_class, corruptions, held_out, device, identity)


def build_scenario(
    settings: ScenarioSettings, seed: int, device: str, cache: Path, progress: TrainingProgress
) -> Scenario:
    return build_testbed(settings, device, cache, progress).scenario(settings.schedule, seed)
