"""What the deployed body makes of the pools that streams draw from: one pass for every example, however often it comes.

A client on a real network makes that pass itself; a simulation need not repeat it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.client_map import loop, side_by_side
from fedade.core.deployment import Deployment
from fedade.core.devices import to_device
from fedade.core.network import HasBase

PoolAt = Callable[[str, int], Tensor]
"""The pool's inputs under a corruption at a severity, on the device that streams them; severity 0 is clean."""

PIECE = {"cpu": 50, "cuda": 2500}
"""Examples in a pass, always as many: features must not depend on which others came with them."""


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
