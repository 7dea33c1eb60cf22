"""The simulator, an adapter and a Flower client do the same with the same stream."""

import numpy as np
import pytest
import torch

import fedade
from fedade.core.context import context_before_first_batch
from fedade.core.seeds import Seeds
from fedade.flower.settings import FlowerSettings
from fedade.flower.snapshots import BEGINNING, Store
from fedade.flower.streams import SimulatedStream
from fedade.flower.turns import Client
from fedade.flower.wire import Instruction
from fedade.methods import METHODS

from ..helpers import clock

TIMESTEPS = 3


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="both", num_clients=1, num_timesteps=TIMESTEPS, reference="common")


def in_simulator(method, scenario) -> list[dict[str, float]]:
    running = clock(method, scenario, rounds=1, participation=1.0, vectorised=False)
    return [{name: value[0] for name, value in rows.items()} for rows in running.run(running.beginning())]


def in_adapter(method, scenario) -> tuple[list[float], list[torch.Tensor]]:
    adapter, accuracies, answers = fedade.Adapter(scenario.deployment, method, pool=1), [], []
    for timestep in range(1, TIMESTEPS + 1):
        batch = scenario.streams.draw(np.arange(1), timestep)
        answers.append(adapter(batch.inputs[0]))
        accuracies.append(float((answers[-1].argmax(-1) == batch.labels[0]).double().mean()))
    return accuracies, answers


def on_flower(method, scenario, folder) -> list[dict[str, float]]:
    """Turns as the server asks for them: one for each timestep, and one that only closes the last."""
    form = method.begin(context_before_first_batch(scenario.deployment))
    stream, seeds = SimulatedStream(scenario.streams, 0), Seeds(0)
    client = Client(method, scenario.deployment, stream, Store(folder, form), FlowerSettings(share="everything"))
    rows, shared, version = [], {}, 0
    for turn, timestep in enumerate([*range(1, TIMESTEPS + 1), 0]):
        answer = client.take_turn(
            Instruction(
                run="run",
                turn=turn,
                base=turn - 1 if turn else BEGINNING,
                keep=BEGINNING,
                timestep=timestep,
                trains=bool(timestep) and method.has_rounds,
                observe_key=seeds.number("observe", client=0, timestep=timestep),
                round_key=seeds.number("local", client=0, timestep=timestep, round=0),
                version=version,
                shared=shared,
            )
        )
        if answer.uplink:  # a federation of one: its mean is the uplink itself
            shared, version = answer.uplink, version + 1
        rows += [] if answer.row is None else [dict(answer.row.measures)]
    return rows


@pytest.mark.parametrize("name", ["fed-ade-plus", "fed-ade", "tent", "bn-adapt", "prior-em", "source"])
def test_the_same_stream_gives_the_same_numbers_in_all_three(name, scenario, tmp_path):
    method = METHODS[name]()
    simulated, told = in_simulator(method, scenario), on_flower(method, scenario, tmp_path)
    accuracies, answers = in_adapter(method, scenario)
    assert accuracies == [row["accuracy_post"] for row in simulated] == [row["accuracy_post"] for row in told]
    for place, (row, sent) in enumerate(zip(simulated, told, strict=True)):
        for column in ("prior", "s", "learning_rate", "trust"):
            assert (column in row) == (column in sent)
            if column in row:
                np.testing.assert_array_equal(np.float64(row[column]), np.float64(sent[column]), err_msg=f"{place}")
    adapter = fedade.Adapter(scenario.deployment, method, pool=1)
    again = [adapter(scenario.streams.draw(np.arange(1), timestep).inputs[0]) for timestep in range(1, TIMESTEPS + 1)]
    assert all(torch.equal(one, other) for one, other in zip(again, answers, strict=True))
    if (prior := adapter.status.prior) is not None:
        np.testing.assert_array_equal(prior.double().numpy(), np.float64(simulated[-1]["prior"]))
