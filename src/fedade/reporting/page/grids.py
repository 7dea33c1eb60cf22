"""The rows of one track by client and timestep, and what a page keeps of them."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedade.core import trace
from fedade.reporting.answers import calibration_bins, class_accuracies, client_accuracies, true_drift
from fedade.reporting.page.numbers import Blobs, Packed

ACCURACIES = ("accuracy_post", "accuracy_pre", "accuracy_fresh")
CURVES = (*ACCURACIES, "confidence")
SIGNALS = ("s_unc", "s_rep", "s")
FEWEST_IN_BIN, LEAST_SHARE_IN_BIN = 20, 0.002
"""Answers that a bin of confidence must hold to be shown: fewer tell nothing of their accuracy."""
PRIORS = ("true_prior", "prior")
_COSTS = ("bytes_sent", "bytes_received", "state_bytes", "passes")
_QUARTILES = (25, 75)


class ClientGrid:
    """Rows by client and timestep."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.clients, self._row = np.unique(trace.column(table, "client"), return_inverse=True)
        self.timesteps, self._column = np.unique(trace.column(table, "timestep"), return_inverse=True)

    @property
    def names(self) -> list[str]:
        """All columns."""
        return list(self.table.column_names)

    @property
    def measures(self) -> list[str]:
        """The columns with one number per row that tell how a client fares."""
        apart = {*trace.IDENTIFIERS, *_COSTS, "n"}
        numbers = [field.name for field in self.table.schema if _is_number(field.type)]
        return [name for name in numbers if name not in apart]

    def mean(self, name: str) -> float | None:
        """Over the rows that have it."""
        values = trace.column(self.table, name)
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None

    def place(self, name: str) -> NDArray[Any]:
        """A column as `[client, timestep]`, or a list as `[client, class, timestep]`; what is missing is NaN."""
        return self._placed(trace.column(self.table, name))

    def mean_over_clients(self, values: NDArray[Any]) -> NDArray[Any]:
        """One number per row to one per timestep; NaN where nobody has any."""
        placed = self._placed(values)
        known = np.isfinite(placed)
        sums, counts = np.where(known, placed, 0).sum(0), known.sum(0)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def _placed(self, values: NDArray[Any]) -> NDArray[Any]:
        values = values.astype(float)
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
        for name in CURVES
        if name in grid.names
    }


def answers(grid: ClientGrid, blobs: Blobs) -> dict[str, Packed]:
    """What a track tells beyond accuracy over time: calibration, classes, clients from worst to best, drift."""
    table, packed = grid.table, {}
    if "confidence_samples" in grid.names:
        samples, hits, _ = calibration_bins(table)
        enough = samples >= max(FEWEST_IN_BIN, LEAST_SHARE_IN_BIN * samples.sum())
        shown = np.where(enough, hits / np.maximum(samples, 1), np.nan)
        packed["calibration"] = blobs.levels(shown, 0, 1, bits=16)
        packed["classes"] = blobs.levels(class_accuracies(table), 0, 1, bits=16)
    packed["clients"] = blobs.levels(np.sort(client_accuracies(table)), 0, 1, bits=16)
    signals = [name for name in SIGNALS if name in grid.names]
    if signals and "true_prior" in grid.names:
        packed["drift"] = blobs.levels(grid.mean_over_clients(true_drift(table)))
        packed |= {name: blobs.levels(grid.mean_over_clients(trace.column(table, name))) for name in signals}
    return packed


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
