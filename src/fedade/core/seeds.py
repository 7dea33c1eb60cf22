"""Random draws that have addresses.

Every draw names its purpose and its coordinates, so that it does not depend on the order of calls, on other clients,
or on where a run was resumed.
"""

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """All random streams of one run, from one root seed."""

    root: int

    def generator(self, purpose: str, **coordinates: int) -> np.random.Generator:
        """The generator at an address: the same bits whoever asks, whenever.

        >>> Seeds(0).generator("stream", client=3, timestep=7).integers(100)
        np.int64(86)
        """
        return np.random.Generator(np.random.Philox(key=np.frombuffer(self._digest(purpose, coordinates), np.uint64)))

    def number(self, purpose: str, **coordinates: int) -> int:
        """A whole number below 2³¹ at an address, the root of draws that are made by `fedade.maths.counter`."""
        return int.from_bytes(self._digest(purpose, coordinates)[:4], "little") >> 1

    def _digest(self, purpose: str, coordinates: dict[str, int]) -> bytes:
        place = ",".join(f"{name}={coordinates[name]}" for name in sorted(coordinates))
        return hashlib.blake2b(f"{self.root}/{purpose}/{place}".encode(), digest_size=16).digest()
