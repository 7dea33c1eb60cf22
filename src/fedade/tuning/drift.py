"""Drift simulated from held-out labelled data: what constants are chosen on, so that no stream is ever looked at."""

from dataclasses import replace
from functools import cache as remember

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.scenario import ClientReferences, Scenario
from fedade.core.seeds import Seeds
from fedade.data.corruptions.registry import MAX_SEVERITY
from fedade.data.disturbances import disturbed
from fedade.scenarios.measuring import measured_deployment
from fedade.scenarios.partition import client_rows
from fedade.scenarios.pools import PoolAt
from fedade.scenarios.settings import Kind, ScenarioSettings
from fedade.scenarios.streams import ShiftStreams, client_schedules, initial_priors, target_priors

SEED = 1_000_003
"""Seed of all simulated drift; no run uses it by chance."""
CLIENTS, TIMESTEPS = 24, 100
SCHEDULES = ("lin", None, "sin", None, "squ", None, "ber", None)
"""Schedules of the simulated clients, in turn; None: data stay as they were. These are half, since what adapting costs
them is small beside the chance of which samples they meet."""
STRONGEST = {"noise": 0.6, "blur": 3.0, "contrast": 0.85, "brightness": 1.0}
"""Disturbances of inputs at full severity, which are not the benchmarks' corruptions."""


def simulated_drift(deployment: Deployment, held_out: Reference, settings: ScenarioSettings) -> Scenario:
    """A federation of some clients, half of the held-out data being their streams and half their labelled data. Of the
    scenario's settings it takes what an operator knows before any stream: how many samples arrive, how much labelled
    data a client has, and whether classes or inputs are expected to move."""
    device, seeds = held_out.labels.device, Seeds(SEED)
    labels = held_out.labels.cpu().numpy()
    streamed, trained_on = _halves(labels, deployment.num_classes, seeds)
    clients = settings.num_clients if settings.supports == "disjoint" else min(CLIENTS, settings.num_clients)
    steps, kind = min(TIMESTEPS, settings.num_timesteps), drift_kind(settings)
    simulated = settings.model_copy(update={"num_clients": clients, "num_timesteps": steps, "kind": kind})
    paths = np.zeros((clients, steps + 1))  # ω of every client, each by a schedule of its own
    for client in range(clients):
        if (name := schedule_of(client)) is not None:
            paths[client] = client_schedules(simulated.model_copy(update={"schedule": name}), seeds)[client]
    streams = ShiftStreams(
        settings=simulated,
        seeds=seeds,
        pool_at=_disturbed_pool(held_out.inputs),
        rows_by_class=tuple(streamed),
        initial_priors=initial_priors(simulated, seeds, deployment.num_classes),
        target_priors=target_priors(simulated, seeds, deployment.num_classes),
        schedule=paths,
        corruptions=tuple(STRONGEST),
        device=str(device),
    )
    rows = np.concatenate(trained_on)
    most = min(len(own) for own in trained_on) * deployment.num_classes
    sets, size = clients if settings.reference == "own" else 1, min(settings.reference_size, most)
    drawn = client_rows(labels[rows], deployment.num_classes, sets, size, seeds).rows

    def features(under: Deployment) -> Tensor:
        return streams.features.of(under, streams.pool_at, next(iter(STRONGEST)), 0, np.arange(len(labels)))

    known = _measured_without_the_streams(deployment, held_out, rows)
    own_rows = torch.from_numpy(rows[np.broadcast_to(drawn, (clients, drawn.shape[1]))]).to(device)
    return Scenario(known, streams, ClientReferences(held_out, own_rows, features))


def _measured_without_the_streams(deployment: Deployment, held_out: Reference, rows: NDArray[np.int64]) -> Deployment:
    """The deployment as measured on some held-out data alone: a confusion matrix of the very images that a simulated
    stream shows would find its class frequencies too well."""
    device = held_out.labels.device
    chosen = torch.from_numpy(rows).to(device)
    inputs, labels = held_out.inputs[chosen], held_out.labels[chosen].cpu().numpy()
    model = (deployment.network, deployment.split, deployment.parameters)
    source, classes = deployment.source_prior.cpu(), deployment.num_classes
    measured = measured_deployment(*model, inputs, labels, source, classes, device).to(device)
    kept = {name: getattr(measured, name) for name in ("confusion", "mean_prediction", "temperature", "held_out")}
    return replace(deployment, **kept)


def drift_kind(settings: ScenarioSettings) -> Kind:
    """What is simulated: what is expected to move; class frequencies, where nothing is."""
    return "label" if settings.kind == "none" else settings.kind


def without_shift(scenario: Scenario) -> Scenario:
    """A scenario of the same clients, whose data stay as they were."""
    streams = scenario.streams
    assert isinstance(streams, ShiftStreams)  # noqa: S101 - simulated drift has no others
    return replace(scenario, streams=replace(streams, schedule=np.zeros_like(streams.schedule)))


def _halves(
    labels: NDArray[np.int64], num_classes: int, seeds: Seeds
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Rows to stream and rows to train on, class by class."""
    first, second = [], []
    for label in range(num_classes):
        own = seeds.generator("halves", label=label).permutation(np.flatnonzero(labels == label))
        half = max(1, len(own) // 2)
        first.append(own[:half])
        second.append(own[half:] if len(own) > half else own)
    return first, second


def schedule_of(client: int) -> str | None:
    """By which schedule a simulated client's data move, if they do."""
    return SCHEDULES[client % len(SCHEDULES)]


def _disturbed_pool(inputs: Tensor) -> PoolAt:
    """The held-out inputs by disturbance and severity, each made once."""

    @remember
    def pool_at(kind: str, severity: int) -> Tensor:
        return disturbed(inputs, kind if severity else "none", STRONGEST[kind] * severity / MAX_SEVERITY, SEED)

    return pool_at
