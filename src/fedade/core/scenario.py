"""A deployment with its clients' streams, whose labels only the engine sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment


class KnownFeatures(NamedTuple):
    """For inputs that come again and again, of which a model needs to make but one pass each."""

    inputs: Tensor
    """What it is about: this very tensor, so that whoever changes a batch's inputs is not given features of others."""
    of: Callable[[Deployment], Tensor]
    """What a deployed body with its deployed statistics makes of them, `[C, n, ...]`."""


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
    known: KnownFeatures | None = None

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that has an axis of clients."""
        return self.inputs, self.labels, self.prior, self.severity

    def features(self, deployment: Deployment) -> Tensor | tuple[()]:
        """Those of a deployed body, or nothing if they are not known."""
        return self.known.of(deployment) if self.known is not None and self.known.inputs is self.inputs else ()


def stacked(batches: Sequence[Batch]) -> Batch:
    """Batches of several federations as one, `[F, C, ...]`."""
    inputs, labels, prior, severity = (
        torch.stack(parts) for parts in zip(*(one.tensors for one in batches), strict=True)
    )
    known = [one.known for one in batches if one.known is not None and one.known.inputs is one.inputs]
    if len(known) < len(batches):
        return Batch(inputs, labels, prior, severity)

    def features(deployment: Deployment) -> Tensor:
        return torch.stack([one.of(deployment) for one in known])

    return Batch(inputs, labels, prior, severity, KnownFeatures(inputs, features))


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
