"""A deployment with its clients' streams, whose labels only the engine sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment, Reference

FeaturesUnder = Callable[[Deployment], Tensor]
"""From a deployment to what its body, with its deployed statistics, makes of a batch's inputs, `[C, n, ...]`."""


class Batch(NamedTuple):
    """One timestep of several clients, with what only the engine and oracles may see.

    >>> labels = torch.tensor([[0, 1], [1, 1]])
    >>> prior = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    >>> Batch(torch.rand(2, 2, 4), labels, prior, severity=torch.zeros(2)).inputs.shape
    torch.Size([2, 2, 4])
    """

    inputs: Tensor
    """`[C, n, ...]`"""
    labels: Tensor
    """Hidden, `[C, n]`."""
    prior: Tensor
    """True class distributions, `[C, K]`."""
    severity: Tensor
    """Strength of the input shift, `[C]`; 0 is clean."""
    features: FeaturesUnder | None = None
    """Features of inputs that come again and again, which need no pass; None where nothing is known."""

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that has an axis of clients."""
        return self.inputs, self.labels, self.prior, self.severity

    def with_inputs(self, inputs: Tensor) -> "Batch":
        """The same batch with other inputs, of which no features are known."""
        return self._replace(inputs=inputs, features=None)


def stacked(batches: Sequence[Batch]) -> Batch:
    inputs, labels, prior, severity = (
        torch.stack(parts) for parts in zip(*(batch.tensors for batch in batches), strict=True)
    )
    known = [batch.features for batch in batches if batch.features is not None]

    def features(deployment: Deployment) -> Tensor:
        return torch.stack([under(deployment) for under in known])

    return Batch(inputs, labels, prior, severity, features if len(known) == len(batches) else None)


class Streams(Protocol):
    """The batches of all clients over time, of which anybody may write others.

    >>> class Constant:
    ...     num_clients, num_timesteps = 3, 10
    ...
    ...     def draw(self, clients, timestep, purpose="stream"):
    ...         labels, prior = torch.zeros(len(clients), 8).long(), torch.tensor([1.0, 0.0]).repeat(len(clients), 1)
    ...         return Batch(torch.rand(len(clients), 8, 4), labels, prior, severity=torch.zeros(len(clients)))
    >>> streams: Streams = Constant()
    >>> streams.draw(np.arange(3), timestep=1).labels.shape
    torch.Size([3, 8])
    """

    @property
    def num_clients(self) -> int: ...

    @property
    def num_timesteps(self) -> int: ...

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """The batches of some clients at a timestep (1..T); another purpose gives an independent draw."""


def present_clients(streams: Streams, timestep: int) -> NDArray[np.int64]:
    """Who has joined by a timestep, in ascending order: all, unless streams tell clients' `first_timesteps`, `[C]`."""
    first = getattr(streams, "first_timesteps", np.ones(streams.num_clients, dtype=np.int64))
    return np.flatnonzero(first <= timestep)


class ClientReferences(NamedTuple):
    """Every client's own labelled data (x_c⁰, y_c⁰): rows of a pool that is stored once."""

    pool: Reference
    rows: Tensor
    """`[C, n]`"""
    features: FeaturesUnder
    """What a deployment's body makes of the pool."""


@dataclass(frozen=True)
class Scenario:
    """What is deployed and what then arrives."""

    deployment: Deployment
    streams: Streams
    references: ClientReferences | None = None
    """None: clients have nothing labelled but what ships with the deployment."""
