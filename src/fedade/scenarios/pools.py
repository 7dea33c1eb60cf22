"""The images that streams draw from, under every corruption that a client may meet, and what the deployed body makes
of them: one pass for every example, however often it comes. A client on a real network makes that pass itself; a
simulation need not repeat it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.client_map import loop, side_by_side
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.network import HasBase
from fedade.core.threads import to_device
from fedade.data.corruptions.registry import CORRUPTIONS, STANDARD, corrupted_pool, digest_of
from fedade.data.dataset import Dataset, Labelled
from fedade.data.registry import DATASETS, official_corruption
from fedade.data.sensor_corruptions import SENSOR_CORRUPTIONS, SENSOR_STANDARD, corrupt_sensor
from fedade.data.specs import CorruptedSpec
from fedade.scenarios.settings import ScenarioSettings

PoolAt = Callable[[str, int], Tensor]
"""The pool's inputs under a corruption at a severity, on the device that streams them; severity 0 is clean."""
PIECE = {"cpu": 50, "cuda": 2500}
"""Examples in a pass, always as many: features must not depend on which others came with them."""
IMAGES_SEED = 0
"""Corrupted images are part of the benchmark: the same for every run."""


@dataclass
class _Table:
    features: Tensor
    known: NDArray[np.bool_]
    """Which rows are filled in; the host asks, so it keeps this itself."""


@dataclass
class PoolFeatures:
    """Features of those rows of the pools that were asked for, by corruption and severity."""

    deployment: Deployment | None = None
    """The one that the tables are of."""
    tables: dict[tuple[str, int], _Table] = field(default_factory=dict)

    def of(
        self, deployment: Deployment, pool_at: PoolAt, corruption: str, severity: int, rows: NDArray[np.int64]
    ) -> Tensor:
        """Features of rows of a pool, `[*rows.shape, ...]`."""
        if deployment is not self.deployment:
            self.deployment, self.tables = deployment, {}
        pool, table = pool_at(corruption, severity), self.tables.get((corruption, severity))
        unknown = np.unique(rows if table is None else rows[~table.known[rows]])
        if table is None and pool.is_cuda:
            unknown = np.arange(len(pool))  # a few milliseconds, where many small passes would take longer
        if len(unknown):
            fresh = _features(deployment, pool, unknown)
            if table is None:
                table = _Table(fresh.new_zeros((len(pool), *fresh.shape[1:])), np.zeros(len(pool), dtype=bool))
                self.tables[corruption, severity] = table
            table.features[to_device(unknown, pool.device)] = fresh
            table.known[unknown] = True
        assert table is not None  # noqa: S101 - rows are not empty
        return table.features[to_device(rows, pool.device)]


def _features(deployment: Deployment, pool: Tensor, rows: NDArray[np.int64]) -> Tensor:
    piece = PIECE[pool.device.type]
    pieces = np.resize(rows, (-(-len(rows) // piece), piece))  # the last is filled up with rows from the start
    network = deployment.network
    # A copy of a large base for every core would be too much.
    one_per_core = pool.device.type == "cpu" and not isinstance(network.body, HasBase)
    with torch.no_grad():
        found: Tensor = (side_by_side if one_per_core else loop)(
            lambda some: network.represent(deployment.parameters, pool[some]), to_device(pieces, pool.device)
        )
    return found.flatten(0, 1)[: len(rows)]


def corruption_names(dataset: Dataset, settings: ScenarioSettings) -> tuple[str, ...]:
    """The corruptions that clients are assigned, in turn."""
    images = len(dataset.input_shape) == 3 and dataset.train.inputs.dtype == np.uint8
    if settings.shifts_inputs and not images:
        raise FedadeError(
            f"scenario.kind: {settings.kind} corrupts images of bytes, and {dataset.name} holds "
            f"{dataset.train.inputs.dtype} {list(dataset.input_shape)}; choose label or none, or store uint8 images"
        )
    known, standard = (SENSOR_CORRUPTIONS, SENSOR_STANDARD) if dataset.input_shape[0] == 1 else (CORRUPTIONS, STANDARD)
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
