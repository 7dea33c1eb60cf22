"""The rows of one track by client and timestep, and what a page keeps of them."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedade.core import trace
from fedade.reporting.page.numbers import Blobs, Packed

ACCURACIES = ("accuracy_post", "accuracy_pre", "accuracy_fresh")
PRIORS = ("true_prior", "prior")
_COSTS = ("bytes_sent", "bytes_received", "state_bytes", "passes")
_QUARTILES = (25, 75)


class ClientGrid:
    """Rows by client and timestep."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.clients, self._row = np.unique(trace.column(table, "client"), return_inverse=True)
        self.timesteps, self._column = np.unique(trace.column(table, "timestep"), return_inverse=True)

    @property
    def names(self) -> list[str]:
        """All columns."""
        return list(self._table.column_names)

    @property
    def measures(self) -> list[str]:
        """The columns with one number per row that tell how a client fares."""
        apart = {*trace.IDENTIFIERS, *_COSTS, "n"}
        numbers = [field.name for field in self._table.schema if _is_number(field.type)]
        return [name for name in numbers if name not in apart]

    def place(self, name: str) -> NDArray[Any]:
        """A column as `[client, timestep]`, or a list as `[client, class, timestep]`; what is missing is NaN."""
        values = trace.column(self._table, name).astype(float)
        placed = np.full((len(self.clients), len(self.timesteps), *values.shape[1:]), np.nan)
        placed[self._row, self._column] = values
        # Time is the last axis because neighbours in time are alike, which compresses well.
        return np.ascontiguousarray(np.moveaxis(placed, 1, -1))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def numbering(numbers: NDArray[Any]) -> dict[str, int] | list[int]:
    """Client numbers or timesteps: in short where they are evenly spaced, as they mostly are."""
    gaps = np.unique(np.diff(numbers))
    if len(gaps) > 1:
        return [int(number) for number in numbers]
    return {"first": int(numbers[0]), "step": int(gaps[0]) if len(gaps) else 1, "count": len(numbers)}


def curves(grid: ClientGrid, blobs: Blobs) -> dict[str, Packed]:
    """Mean and quartiles over clients, by timestep."""
    return {
        name: blobs.levels(_mean_and_quartiles(grid.place(name)), 0, 1, bits=16)
        for name in ACCURACIES
        if name in grid.names
    }


def _mean_and_quartiles(values: NDArray[Any]) -> NDArray[Any]:
    """`[client, timestep]` to `[3, timestep]`; a timestep that nobody reported stays NaN."""
    lines = np.full((1 + len(_QUARTILES), values.shape[1]), np.nan)
    known = np.isfinite(values).any(0)
    lines[0, known] = np.nanmean(values[:, known], 0)
    lines[1:, known] = np.nanpercentile(values[:, known], _QUARTILES, axis=0)
    return lines


def measured(grid: ClientGrid, stride: int, blobs: Blobs) -> dict[str, Packed]:
    """Accuracies, rate, signals and diagnostics of single clients, `[client, timestep]`."""
    sizes = grid.place("n")[::stride]
    columns = {name: grid.place(name)[::stride] for name in grid.measures}
    return {
        name: blobs.shares(values, sizes) if name in ACCURACIES else blobs.levels(values)
        for name, values in columns.items()
        if name in ACCURACIES or np.nan_to_num(values).any()  # severity is 0 wherever there is no covariate shift
    }


def priors(grid: ClientGrid, stride: int, blobs: Blobs) -> dict[str, Packed]:
    """True and estimated class frequencies of single clients, `[client, class, timestep]`."""
    columns = {name: grid.place(name)[::stride] for name in PRIORS if name in grid.names}
    return {name: blobs.levels(values, 0, 1) for name, values in columns.items() if np.isfinite(values).any()}
