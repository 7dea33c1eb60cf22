"""Streams that drift: what each client draws at each timestep, and what only the engine knows of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.scenario import Batch
from fedade.core.seeds import Seeds
from fedade.core.threads import to_device
from fedade.data.corruptions.registry import MAX_SEVERITY
from fedade.maths.schedules import SCHEDULES
from fedade.maths.shift_weights import weights as schedule_weights
from fedade.scenarios.pools import PoolAt, PoolFeatures
from fedade.scenarios.settings import ScenarioSettings

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ShiftStreams:
    """Q_c^t = (1 − ω(t)) Q_c^0 + ω(t) Q_c^T (eq:label_shift), and corruptions whose severity follows ω.

    Other laws (`stream_laws/`) derive from it and say differently what comes when."""

    settings: ScenarioSettings
    seeds: Seeds
    pool_at: PoolAt
    rows_by_class: tuple[Ints, ...]
    initial_priors: Floats
    """Q_c⁰, `[C, K]`."""
    target_priors: Floats
    """Q_c^T, `[C, K]`."""
    schedule: Floats
    """ω of every client, `[C, T + 1]`."""
    corruptions: tuple[str, ...]
    device: str
    features: PoolFeatures = field(default_factory=PoolFeatures, repr=False, compare=False)
    """Features of the pools, shared by all streams of one scenario."""

    @staticmethod
    def schedules(settings: ScenarioSettings, seeds: Seeds) -> Floats:
        """ω of every client, `[C, T + 1]`."""
        return client_schedules(settings, seeds)

    @staticmethod
    def joining(settings: ScenarioSettings, seeds: Seeds) -> Ints:
        """The first timestep of every client, `[C]`; before it a client has no batches."""
        return np.ones(settings.num_clients, dtype=np.int64)

    @property
    def first_timesteps(self) -> Ints:
        return self.joining(self.settings, self.seeds)

    @property
    def num_clients(self) -> int:
        return self.settings.num_clients

    @property
    def num_timesteps(self) -> int:
        return self.settings.num_timesteps

    def prior(self, clients: Ints, timestep: int) -> Floats:
        """True class distributions, `[C, K]`."""
        weight = self.schedule[clients, timestep, None] * self.settings.shifts_labels
        return (1 - weight) * self.initial_priors[clients] + weight * self.target_priors[clients]

    def severity(self, clients: Ints, timestep: int) -> Ints:
        """Strength of the corruption, `[C]`, 0 to 5."""
        if not self.settings.shifts_inputs:
            return np.zeros(len(clients), dtype=np.int64)
        weight = self.schedule[clients, timestep]
        if self.settings.severity == "release":
            weight = (np.ceil(4 * weight) + 1) / MAX_SEVERITY
        return np.asarray(np.rint(MAX_SEVERITY * weight).clip(0, MAX_SEVERITY), dtype=np.int64)

    def rows(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        """Rows of the pool and their labels, `[C, n]`: classes from the prior, then images of the class."""
        uniforms = np.stack([
            self.seeds.generator(purpose, client=client, timestep=timestep).random((2, self.settings.samples))
            for client in clients.tolist()
        ])  # fmt: skip
        cumulative = np.cumsum(self.prior(clients, timestep), axis=1)
        passed = (cumulative[:, None, :] <= uniforms[:, 0, :, None]).sum(-1)
        labels = np.minimum(passed, cumulative.shape[1] - 1)
        counts = np.array([len(rows) for rows in self.rows_by_class])
        starts = np.cumsum(counts) - counts
        places = starts[labels] + (uniforms[:, 1] * counts[labels]).astype(np.int64)
        return np.concatenate(self.rows_by_class)[places], labels

    def draw(self, clients: Ints, timestep: int, purpose: str = "stream") -> Batch:
        rows, labels = self.rows(clients, timestep, purpose)
        conditions = self.conditions(clients, timestep, purpose)
        gathered = partial(self._gathered, conditions, rows)

        def images(corruption: str, severity: int, wanted: Ints) -> Tensor:
            pool = self.pool_at(corruption, severity)
            return pool[to_device(wanted, pool.device)]

        def features(deployment: Deployment) -> Tensor:
            return gathered(partial(self.features.of, deployment, self.pool_at))

        return Batch(
            gathered(images),
            to_device(labels, self.device),
            to_device(self.prior(clients, timestep).astype(np.float32), self.device),
            to_device(conditions[1].max(1), self.device),
            features,
        )

    def conditions(self, clients: Ints, timestep: int, purpose: str = "stream") -> tuple[Ints, Ints]:
        """Number of the corruption, and its severity, of every sample, `[C, n]`: here one of each client's own."""
        severities = self.severity(clients, timestep)
        names = clients % len(self.corruptions)
        shape = (len(clients), self.settings.samples)
        return np.broadcast_to(names[:, None], shape), np.broadcast_to(severities[:, None], shape)

    def _gathered(self, conditions: tuple[Ints, Ints], rows: Ints, take: Callable[[str, int, Ints], Tensor]) -> Tensor:
        """Something of every row, `[C, n, ...]`, taken once for samples under the same corruption and severity."""
        names, severities = (values.ravel() for values in conditions)
        names = np.where(severities > 0, names, 0)
        groups = np.unique(np.stack([names, severities], 1), axis=0)
        whole: Tensor | None = None
        for name, severity in groups.tolist():
            if len(groups) == 1:
                return take(self.corruptions[name], severity, rows)
            of_group = np.flatnonzero((names == name) & (severities == severity))
            taken = take(self.corruptions[name], severity, rows.ravel()[of_group])
            if whole is None:
                whole = taken.new_empty((rows.size, *taken.shape[1:]))
            whole[to_device(of_group, taken.device)] = taken
        assert whole is not None  # noqa: S101 - there is a client
        return whole.reshape(*rows.shape, *whole.shape[1:])


def client_schedules(settings: ScenarioSettings, seeds: Seeds) -> Floats:
    """ω of every client, `[C, T + 1]`; random schedules have a path for every client."""

    def path(client: int) -> Floats:
        uniforms = torch.from_numpy(seeds.generator("schedule", client=client).random(settings.num_timesteps))
        weights = schedule_weights(settings.schedule, settings.num_timesteps, uniforms, settings.variant)
        return np.asarray(weights.numpy())

    if not SCHEDULES[settings.schedule].random:
        return np.broadcast_to(path(0), (settings.num_clients, settings.num_timesteps + 1))
    return np.stack([path(client) for client in range(settings.num_clients)])


def client_supports(settings: ScenarioSettings, seeds: Seeds, num_classes: int) -> list[Ints]:
    """The classes that each client meets: all, or an equal share of its own by a permutation of the run's seed."""
    if settings.supports == "all":
        return [np.arange(num_classes)] * settings.num_clients
    if settings.num_clients > num_classes:
        raise FedadeError(
            f"scenario.supports: disjoint gives each of {settings.num_clients} clients classes of its own, and there "
            f"are {num_classes}; set scenario.num_clients to {num_classes} or less, or scenario.supports to all"
        )
    shuffled = seeds.generator("supports").permutation(num_classes)
    ends = np.arange(1, settings.num_clients) * num_classes // settings.num_clients
    return [np.sort(own) for own in np.split(shuffled, ends)]


def initial_priors(settings: ScenarioSettings, seeds: Seeds, num_classes: int) -> Floats:
    """Q_c⁰ of every client, `[C, K]`: flat over its own classes, or over all."""
    if settings.initial == "global":
        return np.full((settings.num_clients, num_classes), 1 / num_classes)
    return _on_supports(settings, seeds, num_classes, lambda _, size: np.full(size, 1 / size))


def target_priors(settings: ScenarioSettings, seeds: Seeds, num_classes: int) -> Floats:
    """Q_c^T of every client, `[C, K]`, from a symmetric Dirichlet distribution over its classes."""

    def drawn(client: int, size: int) -> Floats:
        return seeds.generator("target", client=client).dirichlet(np.full(size, settings.alpha))

    return _on_supports(settings, seeds, num_classes, drawn)


def _on_supports(
    settings: ScenarioSettings, seeds: Seeds, num_classes: int, prior: Callable[[int, int], Floats]
) -> Floats:
    """Class distributions of all clients from those over their own classes; `prior` has a client and their number."""
    priors = np.zeros((settings.num_clients, num_classes))
    for client, own in enumerate(client_supports(settings, seeds, num_classes)):
        priors[client, own] = prior(client, len(own))
    return priors
