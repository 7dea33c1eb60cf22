"""The rows of one track by client and timestep, and what a page keeps of them: few bits for each number, compressed.

A number is stored as a code of 8 or 16 bits: `value = low + step * code`; the largest code says that there is no value.
Codes are gzipped, which every browser since 2023 can undo by itself, and written as base64; equal arrays are kept once.
"""

import base64
import gzip
import hashlib
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedade.core import trace
from fedade.reporting.answers import calibration_bins, class_accuracies, client_accuracies, true_drift

ACCURACIES = ("accuracy_post", "accuracy_pre", "accuracy_fresh")
CURVES = (*ACCURACIES, "confidence")
SIGNALS = ("s_unc", "s_rep", "s")
FEWEST_IN_BIN, LEAST_SHARE_IN_BIN = 20, 0.002
"""Answers that a bin of confidence must hold to be shown: fewer tell nothing of their accuracy."""
PRIORS = ("true_prior", "prior")
_COSTS = ("bytes_sent", "bytes_received", "state_bytes", "passes")
_QUARTILES = (25, 75)


class Packed(TypedDict):
    """What a page needs to know to read an array back."""

    blob: int
    bits: int
    low: float
    step: float
    shape: list[int]


class Blobs:
    """The compressed arrays of a page, one line each."""

    def __init__(self, lines: list[str] | None = None, places: dict[bytes, int] | None = None) -> None:
        self.lines = lines or []
        self._places = places or {}

    def copy(self) -> "Blobs":
        """The same arrays, to try whether more of them fit."""
        return Blobs(list(self.lines), dict(self._places))

    @property
    def size(self) -> int:
        return sum(len(line) + 1 for line in self.lines)

    def shares(self, values: NDArray[Any], of: NDArray[Any]) -> Packed:
        """Right answers out of `of`: exactly, where all batches have one size that fits into 8 bits."""
        sizes = np.unique(of[np.isfinite(of)])
        if len(sizes) == 1 and 0 < sizes[0] < 255:
            counts = values[np.isfinite(values)] * sizes[0]
            if np.allclose(counts, np.round(counts), atol=1e-3):
                return self._pack(values, 0, 1 / float(sizes[0]), 8)
        return self.levels(values, 0, 1, bits=16)

    def levels(
        self, values: NDArray[Any], low: float | None = None, high: float | None = None, bits: int = 8
    ) -> Packed:
        """Evenly spaced levels from `low` to `high`, or over the range of the values."""
        known = values[np.isfinite(values)]
        if not known.size:
            return self._pack(values, 0, 1, bits)
        bottom, top = float(known.min()) if low is None else low, float(known.max()) if high is None else high
        step = (top - bottom) / (2**bits - 2)
        return self._pack(values, bottom, step if step > 0 else 1, bits)  # 0 where there is one value only

    def _pack(self, values: NDArray[Any], low: float, step: float, bits: int) -> Packed:
        missing = 2**bits - 1
        codes = np.full(values.shape, missing, dtype=f"<u{bits // 8}")
        known = np.isfinite(values)
        codes[known] = np.clip(np.round((values[known] - low) / step), 0, missing - 1)
        return Packed(blob=self._place(codes.tobytes()), bits=bits, low=low, step=step, shape=list(values.shape))

    def _place(self, content: bytes) -> int:
        name = hashlib.blake2b(content, digest_size=16).digest()
        if name not in self._places:
            self._places[name] = len(self.lines)
            self.lines.append(base64.b64encode(gzip.compress(content, 9, mtime=0)).decode())
        return self._places[name]


class ClientGrid:
    """Rows by client and timestep."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.clients, self._row = np.unique(trace.column(table, "client"), return_inverse=True)
        self.timesteps, self._column = np.unique(trace.column(table, "timestep"), return_inverse=True)

    @property
    def measures(self) -> list[str]:
        """The columns with one number per row that tell how a client fares."""
        apart = {*trace.IDENTIFIERS, *_COSTS, "n"}
        is_number = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
        numbers = [field.name for field in self.table.schema if any(kind(field.type) for kind in is_number)]
        return [name for name in numbers if name not in apart]

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


def numbering(numbers: NDArray[Any]) -> dict[str, int] | list[int]:
    """Client numbers or timesteps: in short where they are evenly spaced, as they mostly are."""
    gaps = np.unique(np.diff(numbers))
    if len(gaps) > 1:
        return [int(number) for number in numbers]
    return {"first": int(numbers[0]), "step": int(gaps[0]) if len(gaps) else 1, "count": len(numbers)}


def curves(grid: ClientGrid, blobs: Blobs) -> dict[str, Packed]:
    there = [name for name in CURVES if name in grid.table.column_names]
    return {name: blobs.levels(_mean_and_quartiles(grid.place(name)), 0, 1, bits=16) for name in there}


def answers(grid: ClientGrid, blobs: Blobs) -> dict[str, Packed]:
    """What a track tells beyond accuracy over time: calibration, classes, clients from worst to best, drift."""
    table, packed = grid.table, {}
    if "confidence_samples" in grid.table.column_names:
        samples, hits, _ = calibration_bins(table)
        enough = samples >= max(FEWEST_IN_BIN, LEAST_SHARE_IN_BIN * samples.sum())
        packed["calibration"] = blobs.levels(np.where(enough, hits / np.maximum(samples, 1), np.nan), 0, 1, bits=16)
        packed["classes"] = blobs.levels(class_accuracies(table), 0, 1, bits=16)
    packed["clients"] = blobs.levels(np.sort(client_accuracies(table)), 0, 1, bits=16)
    signals = [name for name in SIGNALS if name in grid.table.column_names]
    if signals and "true_prior" in grid.table.column_names:
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
    sizes = grid.place("n")[::stride]
    columns = {name: grid.place(name)[::stride] for name in grid.measures}
    return {
        name: blobs.shares(values, sizes) if name in ACCURACIES else blobs.levels(values)
        for name, values in columns.items()
        if name in ACCURACIES or np.nan_to_num(values).any()  # severity is 0 wherever there is no covariate shift
    }


def priors(grid: ClientGrid, stride: int, blobs: Blobs) -> dict[str, Packed]:
    """True and estimated class frequencies of single clients, `[client, class, timestep]`."""
    columns = {name: grid.place(name)[::stride] for name in PRIORS if name in grid.table.column_names}
    return {name: blobs.levels(values, 0, 1) for name, values in columns.items() if np.isfinite(values).any()}
