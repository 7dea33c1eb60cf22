"""The images that streams draw from, under every corruption that a client may meet."""

from functools import cache as remember
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.data.corruptions import CORRUPTIONS, STANDARD, corrupted_pool, digest_of
from fedade.data.dataset import Dataset, Labelled
from fedade.data.registry import DATASETS, official_corruption
from fedade.data.sensor_corruptions import SENSOR_CORRUPTIONS, SENSOR_STANDARD, corrupt_sensor
from fedade.data.specs import CorruptedSpec
from fedade.scenarios.pool_features import PoolAt
from fedade.scenarios.settings import ScenarioSettings

IMAGES_SEED = 0
"""Corrupted images are part of the benchmark: the same for every run."""


def corruption_names(dataset: Dataset, settings: ScenarioSettings) -> tuple[str, ...]:
    """The corruptions that clients are assigned, in turn."""
    images = len(dataset.input_shape) == 3 and dataset.train.inputs.dtype == np.uint8
    if settings.shifts_inputs and not images:
        raise FedadeError(
            f"scenario.kind: {settings.kind} corrupts images of bytes, and {dataset.name} holds "
            f"{dataset.train.inputs.dtype} {list(dataset.input_shape)}; choose label or none, or store uint8 images"
        )
    grey = dataset.input_shape[0] == 1
    known, standard = (SENSOR_CORRUPTIONS, SENSOR_STANDARD) if grey else (CORRUPTIONS, STANDARD)
    if not settings.shifts_inputs:
        return standard[:1]  # never applied: the severity is 0
    for name in settings.corruptions:
        if name not in known:
            raise FedadeError(f"scenario.corruptions: {name!r} is unknown; for {dataset.name}: {', '.join(known)}")
    return settings.corruptions or standard


def pool_under_corruption(
    dataset: Dataset, pool: Labelled, settings: ScenarioSettings, cache: Path, device: str
) -> PoolAt:
    """The pool's inputs by corruption and severity, each made once and then resident on the device, as stored."""

    @remember
    def channels_last() -> tuple[NDArray[Any], str]:
        images = np.ascontiguousarray(np.moveaxis(pool.inputs, 1, -1))
        return images, digest_of(images)

    def made(corruption: str, severity: int) -> NDArray[Any]:
        if severity == 0:
            return pool.inputs
        if pool.inputs.shape[1] == 1:
            return corrupt_sensor(pool.inputs, corruption, severity, IMAGES_SEED)
        if isinstance(DATASETS.get(dataset.name), CorruptedSpec):
            official = official_corruption(dataset.name, settings.data_dir, corruption, severity)
            if official is not None and len(official) == len(pool):
                return np.moveaxis(official, -1, 1)
        images, digest = channels_last()
        return np.moveaxis(corrupted_pool(images, corruption, severity, IMAGES_SEED, cache, digest), -1, 1)

    @remember
    def pool_at(corruption: str, severity: int) -> Tensor:
        as_stored = torch.from_numpy(np.array(made(corruption, severity)))  # in the file's order: a plain copy
        return as_stored.to(device).contiguous()

    return pool_at
