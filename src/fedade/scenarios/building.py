"""From settings to a scenario."""

from dataclasses import replace
from functools import cache as remember
from pathlib import Path

import numpy as np
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.data.dataset import Dataset
from fedade.data.registry import load, load_texts
from fedade.data.tokenising import tokenised
from fedade.models.text import is_text, tokeniser
from fedade.scenarios.deploying import deploy
from fedade.scenarios.partition import partition
from fedade.scenarios.pool_features import PoolAt
from fedade.scenarios.pools import corruption_names, pool_under_corruption
from fedade.scenarios.pretraining import Progress
from fedade.scenarios.settings import ScenarioSettings, ScheduleName
from fedade.scenarios.streams import ShiftStreams, client_schedules, initial_priors, target_priors


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


def build_deployment(settings: ScenarioSettings, device: str, cache: Path, progress: Progress) -> Deployment:
    """The deployment alone: read from the cache, or trained."""
    dataset = load_dataset(settings, cache)
    return deploy(dataset, partition(dataset, settings), settings, device, cache / "models", progress)


def build_scenario(settings: ScenarioSettings, seed: int, device: str, cache: Path, progress: Progress) -> Scenario:
    """The deployment (the same for every seed) and the streams of one seed; `cache` keeps what is costly to make."""
    dataset = load_dataset(settings, cache)
    parts = partition(dataset, settings)
    rows_by_class = tuple(np.flatnonzero(parts.pool.labels == label) for label in range(dataset.num_classes))
    for label, rows in enumerate(rows_by_class):
        if not len(rows):
            raise FedadeError(
                f"{dataset.name}: class {dataset.class_names[label]!r} has no example to stream; add some"
            )
    seeds = Seeds(seed)
    pool_at = pool_under_corruption(dataset, parts.pool, settings, cache / "corrupted", device)
    streams = ShiftStreams(
        settings=settings,
        seeds=seeds,
        pool_at=pool_at,
        rows_by_class=rows_by_class,
        initial_priors=initial_priors(settings, seeds, dataset.num_classes),
        target_priors=target_priors(settings, seeds, dataset.num_classes),
        schedule=client_schedules(settings, seeds),
        corruptions=corruption_names(dataset, settings),
        device=device,
    )
    deployment = deploy(dataset, parts, settings, device, cache / "models", progress)
    return Scenario(deployment, replace(streams, pool_at=_encoded(pool_at, deployment.network)))


def _encoded(pool_at: PoolAt, network: Network) -> PoolAt:
    """The pools after the layers that no client ever moves, computed once."""

    @remember
    def encoded(corruption: str, severity: int) -> Tensor:
        return network.encode(pool_at(corruption, severity))

    return encoded


def another(scenario: Scenario, schedule: ScheduleName, seed: int) -> Scenario:
    """The same deployment and examples, with the streams of another schedule and seed."""
    streams = scenario.streams
    assert isinstance(streams, ShiftStreams)  # noqa: S101 - what this module builds
    settings, seeds = streams.settings.model_copy(update={"schedule": schedule}), Seeds(seed)
    drifting = replace(
        streams,
        settings=settings,
        seeds=seeds,
        initial_priors=initial_priors(settings, seeds, scenario.deployment.num_classes),
        target_priors=target_priors(settings, seeds, scenario.deployment.num_classes),
        schedule=client_schedules(settings, seeds),
    )
    return Scenario(scenario.deployment, drifting)
