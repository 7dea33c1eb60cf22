"""From settings to a scenario."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.data.registry import load
from fedade.scenarios.deploying import deploy
from fedade.scenarios.partition import partition
from fedade.scenarios.pools import corruption_names, pool_under_corruption
from fedade.scenarios.pretraining import Progress
from fedade.scenarios.settings import ScenarioSettings, ScheduleName
from fedade.scenarios.streams import ShiftStreams, client_schedules, target_priors


def build_deployment(settings: ScenarioSettings, device: str, cache: Path, progress: Progress) -> Deployment:
    """The deployment alone: read from the cache, or trained."""
    dataset = load(settings.dataset, settings.data_dir)
    return deploy(dataset, partition(dataset, settings), settings, device, cache / "models", progress)


def build_scenario(settings: ScenarioSettings, seed: int, device: str, cache: Path, progress: Progress) -> Scenario:
    """The deployment (the same for every seed) and the streams of one seed; `cache` keeps what is costly to make."""
    dataset = load(settings.dataset, settings.data_dir)
    parts = partition(dataset, settings)
    rows_by_class = tuple(np.flatnonzero(parts.pool.labels == label) for label in range(dataset.num_classes))
    for label, rows in enumerate(rows_by_class):
        if not len(rows):
            raise FedadeError(f"{dataset.name}: class {dataset.class_names[label]!r} has no image to stream; add some")
    seeds = Seeds(seed)
    streams = ShiftStreams(
        settings=settings,
        seeds=seeds,
        pool_at=pool_under_corruption(dataset, parts.pool, settings, cache / "corrupted", device),
        rows_by_class=rows_by_class,
        initial_prior=np.full(dataset.num_classes, 1 / dataset.num_classes),
        target_priors=target_priors(settings, seeds, dataset.num_classes),
        schedule=client_schedules(settings, seeds),
        corruptions=corruption_names(dataset, settings),
        device=device,
    )
    return Scenario(deploy(dataset, parts, settings, device, cache / "models", progress), streams)


def another(scenario: Scenario, schedule: ScheduleName, seed: int) -> Scenario:
    """The same deployment and images, with the streams of another schedule and seed."""
    streams = scenario.streams
    assert isinstance(streams, ShiftStreams)  # noqa: S101 - what this module builds
    settings, seeds = streams.settings.model_copy(update={"schedule": schedule}), Seeds(seed)
    drifting = replace(
        streams,
        settings=settings,
        seeds=seeds,
        target_priors=target_priors(settings, seeds, scenario.deployment.num_classes),
        schedule=client_schedules(settings, seeds),
    )
    return Scenario(scenario.deployment, drifting)
