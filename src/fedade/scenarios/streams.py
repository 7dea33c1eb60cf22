"""Streams that drift: what each client draws at each timestep, and what only the engine knows of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedade.core.scenario import Batch
from fedade.core.seeds import Seeds
from fedade.maths.schedules import weights as schedule_weights
from fedade.scenarios.settings import ScenarioSettings

SEVERITIES = 5

PoolAt = Callable[[str, int], NDArray[Any]]
"""The pool's inputs under a corruption at a severity; severity 0 is clean."""


@dataclass(frozen=True)
class ShiftStreams:
    """Q_c^t = (1 − ω(t)) Q_c^0 + ω(t) Q_c^T (eq:label_shift), and corruptions whose severity follows ω."""

    settings: ScenarioSettings
    seeds: Seeds
    pool_at: PoolAt
    rows_by_class: tuple[NDArray[np.int64], ...]
    initial_prior: NDArray[np.float64]
    """Q⁰, `[K]`."""
    target_priors: NDArray[np.float64]
    """Q_c^T, `[C, K]`."""
    schedule: NDArray[np.float64]
    """ω of every client, `[C, T + 1]`."""
    corruptions: tuple[str, ...]
    device: str

    @property
    def num_clients(self) -> int:
        return self.settings.num_clients

    @property
    def num_timesteps(self) -> int:
        return self.settings.num_timesteps

    def prior(self, clients: NDArray[np.int64], timestep: int) -> NDArray[np.float64]:
        """True class distributions, `[C, K]`."""
        weight = self.schedule[clients, timestep, None] * self.settings.shifts_labels
        return (1 - weight) * self.initial_prior + weight * self.target_priors[clients]

    def severity(self, clients: NDArray[np.int64], timestep: int) -> NDArray[np.int64]:
        """Strength of the corruption, `[C]`, 0 to 5."""
        if not self.settings.shifts_inputs:
            return np.zeros(len(clients), dtype=np.int64)
        weight = self.schedule[clients, timestep]
        if self.settings.severity == "release":
            weight = (np.ceil(4 * weight) + 1) / SEVERITIES
        return np.asarray(np.rint(SEVERITIES * weight).clip(0, SEVERITIES), dtype=np.int64)

    def rows(
        self, client: int, timestep: int, prior: NDArray[np.float64], purpose: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the pool and their labels: classes from the prior, then images of the class."""
        uniforms = self.seeds.generator(purpose, client=client, timestep=timestep).random((2, self.settings.samples))
        labels = np.minimum(np.searchsorted(np.cumsum(prior), uniforms[0], side="right"), len(prior) - 1)
        rows = np.array([
            self.rows_by_class[label][int(place * len(self.rows_by_class[label]))]
            for label, place in zip(labels.tolist(), uniforms[1].tolist(), strict=True)
        ])  # fmt: skip
        return rows, labels

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """The batches of some clients at a timestep (1..T)."""
        priors, severities = self.prior(clients, timestep), self.severity(clients, timestep)
        drawn = [self.rows(int(c), timestep, prior, purpose) for c, prior in zip(clients, priors, strict=True)]
        inputs = [
            self.pool_at(self.corruptions[int(client) % len(self.corruptions)], int(severity))[rows]
            for client, severity, (rows, _) in zip(clients, severities, drawn, strict=True)
        ]
        return Batch(
            torch.from_numpy(np.stack(inputs)).to(self.device),
            torch.from_numpy(np.stack([labels for _, labels in drawn])).to(self.device),
            torch.from_numpy(priors).float().to(self.device),
            torch.from_numpy(severities).to(self.device),
        )


def client_schedules(settings: ScenarioSettings, seeds: Seeds) -> NDArray[np.float64]:
    """ω of every client, `[C, T + 1]`; Bernoulli chains are the clients' own."""

    def one(client: int) -> NDArray[np.float64]:
        uniforms = torch.from_numpy(seeds.generator("schedule", client=client).random(settings.num_timesteps))
        weights = schedule_weights(settings.schedule, settings.num_timesteps, uniforms, settings.variant)
        return np.asarray(weights.numpy())

    if settings.schedule != "ber":
        return np.broadcast_to(one(0), (settings.num_clients, settings.num_timesteps + 1))
    return np.stack([one(client) for client in range(settings.num_clients)])


def target_priors(settings: ScenarioSettings, seeds: Seeds, num_classes: int) -> NDArray[np.float64]:
    """Q_c^T of every client, from a symmetric Dirichlet distribution."""
    return np.stack([
        seeds.generator("target", client=client).dirichlet(np.full(num_classes, settings.alpha))
        for client in range(settings.num_clients)
    ])  # fmt: skip
