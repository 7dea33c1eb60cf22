"""The package's Fed-ADE is that of the paper: a plain loop of its equations gives the same numbers."""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedade.core.scenario import Batch, Scenario, Streams
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.maths.signals.dynamics import mean_feature
from fedade.methods.fed_ade import FedAde

from ..helpers import beginning, clock, only
from .plain_fed_ade import Labelled, Measured, PlainFedAde, Settings
from .test_client_maps import in_precision

CLIENTS, ROUNDS, PARTICIPATION, SEED = 6, 3, 0.5, 0
SAME = {"atol": 1e-9, "rtol": 1e-9}


@dataclass(frozen=True)
class Float64Streams:
    """Streams whose pixels are float64, so that nothing is rounded to less."""

    streams: Streams
    num_clients: int
    num_timesteps: int

    def draw(self, clients: np.ndarray, timestep: int, purpose: str = "stream") -> Batch:
        batch = self.streams.draw(clients, timestep, purpose)
        return batch.with_inputs(batch.inputs.double())


def in_float64(scenario: Scenario) -> Scenario:
    deployment = in_precision(scenario.deployment, torch.float64)
    network = replace(deployment.network, body=deepcopy(deployment.network.body).double())
    exact = replace(deployment, network=network)
    streams = Float64Streams(scenario.streams, scenario.streams.num_clients, scenario.streams.num_timesteps)
    return Scenario(replace(exact, initial_feature=mean_feature(exact.reference_features)), streams)


def labelled_of(scenario: Scenario, client: int) -> Labelled:
    """The labelled data of a client: its own, or what all have."""
    if scenario.references is None:
        return Labelled(*scenario.deployment.reference)
    pool, rows, _ = scenario.references
    return Labelled(pool.inputs[rows[client]], pool.labels[rows[client]])


def plain(scenario: Scenario, settings: Settings) -> PlainFedAde:
    deployment = scenario.deployment
    pixels = deployment.network.body[0]
    constants = {"pixels.mean": pixels.mean, "pixels.deviation": pixels.deviation}
    measured = Measured(deployment.confusion, deployment.source_prior, deployment.temperature)
    labelled = [labelled_of(scenario, client) for client in range(CLIENTS)]
    return PlainFedAde(deployment.parameters | constants, measured, labelled, settings)


@pytest.mark.parametrize("reference", ["own", "common"])
@pytest.mark.parametrize("batch_size", [32, 1000], ids=["minibatches", "whole set"])
@pytest.mark.parametrize("vectorised", [True, False], ids=["vectorised", "loop"])
def test_every_number_is_that_of_a_plain_loop(scenario_factory, batch_size, vectorised, reference):
    scenario = in_float64(
        scenario_factory(kind="both", schedule="squ", num_clients=CLIENTS, num_timesteps=3, reference=reference)
    )
    settings = Settings(1e-3, 3e-2, joint_epochs=2, personal_epochs=1, batch_size=batch_size)
    expected = plain(scenario, settings)
    method = FedAde(
        rate={"low": settings.low, "high": settings.high},
        joint_epochs=settings.joint_epochs,
        personal_epochs=settings.personal_epochs,
        batch_size=batch_size,
    )
    ticking = clock(method, scenario, SEED, ROUNDS, PARTICIPATION, vectorised)
    world, seeds, everyone = beginning(method, scenario), Seeds(SEED), np.arange(CLIENTS)
    for timestep, rows in enumerate(ticking.run(world), 1):
        batch = scenario.streams.draw(everyone, timestep)
        rounds = Rounds(ROUNDS, PARTICIPATION).participants(seeds, CLIENTS, timestep).tolist()
        assert all(len(participants) == CLIENTS // 2 for participants in rounds)
        keys = [
            {client: seeds.number("local", client=client, timestep=timestep, round=number) for client in participants}
            for number, participants in enumerate(rounds)
        ]
        expected.timestep(list(batch.inputs), rounds, keys)
        for name in ("s_unc", "s_rep"):
            signals = [float(getattr(client, name)) for client in expected.clients]
            np.testing.assert_allclose(rows[name], signals, **SAME, err_msg=name)
        np.testing.assert_allclose(rows["learning_rate"], [float(client.rate) for client in expected.clients], **SAME)
        np.testing.assert_allclose(rows["prior"], torch.stack([client.prior for client in expected.clients]), **SAME)
        found = only(world)
        for name, value in expected.shared.items():
            torch.testing.assert_close(found.server[name], value, **SAME)
        for number, client in enumerate(expected.clients):
            for name, value in client.personal.items():
                torch.testing.assert_close(found.clients.own[name][number], value, **SAME)
        accuracies = [
            (expected.predict(client, batch.inputs[client]).argmax(-1) == batch.labels[client]).double().mean()
            for client in range(CLIENTS)
        ]
        np.testing.assert_allclose(rows["accuracy_post"], accuracies, atol=1e-6)
