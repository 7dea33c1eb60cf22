"""Arrays inside a page: few bits for each number, compressed, equal ones once.

A page holds a number for every client, timestep, method and seed, and must stay small. A number is stored as a code of
8 or 16 bits: `value = low + step * code`; the largest code says that there is no value. Codes are gzipped, which every
browser since 2023 can undo by itself, and written as base64.
"""

import base64
import gzip
import hashlib
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray


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
        """Characters in all."""
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
