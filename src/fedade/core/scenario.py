"""A deployment with its clients' streams, whose labels only the engine sees."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment


class Batch(NamedTuple):
    """One timestep of several clients, with what only the engine and oracles may see."""

    inputs: Tensor
    """`[C, n, ...]`"""
    labels: Tensor
    """Hidden, `[C, n]`."""
    prior: Tensor
    """True class distributions, `[C, K]`."""
    severity: Tensor
    """Strength of the input shift, `[C]`; 0 is clean."""


class Streams(Protocol):
    """The batches of all clients over time."""

    @property
    def num_clients(self) -> int: ...

    @property
    def num_timesteps(self) -> int: ...

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """The batches of some clients at a timestep (1..T); another purpose gives an independent draw."""
        ...


@dataclass(frozen=True)
class Scenario:
    """What is deployed and what then arrives."""

    deployment: Deployment
    streams: Streams
