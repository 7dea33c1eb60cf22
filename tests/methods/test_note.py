"""What NOTE alone promises."""

import numpy as np
import pytest
import torch

from fedade.methods.note import Note, balanced_reservoir
from fedade.methods.source import Source
from fedade.parts.sample_memory import empty_memory, remember

from ..helpers import Seen, begin, context, observe, predict


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="both", samples=30)


def batch(scenario, timestep: int) -> Seen:
    return Seen(scenario.streams.draw(np.arange(1), timestep).inputs[0], torch.tensor(timestep), torch.tensor(timestep))


def test_a_samples_answer_does_not_depend_on_its_batch(scenario):
    deployment, inputs = scenario.deployment, batch(scenario, 3).inputs
    client = begin(Note(), deployment)
    whole = predict(Note(), deployment, client, (), inputs)
    alone = torch.cat([predict(Note(), deployment, client, (), inputs[row : row + 1]) for row in range(len(inputs))])
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-4)


def test_with_endless_patience_a_fresh_client_is_the_source(scenario):
    deployment, inputs = scenario.deployment, batch(scenario, 3).inputs
    patient = Note(tolerance=1e9)
    expected = predict(Source(), deployment, (), (), inputs)
    torch.testing.assert_close(predict(patient, deployment, begin(patient, deployment), (), inputs), expected)


def test_it_learns_once_for_every_memory_of_samples(scenario):
    method, deployment = Note(memory_size=64), scenario.deployment
    client, steps = begin(method, deployment), []
    for timestep in (1, 2, 3, 4):
        client, _ = observe(method, deployment, client, (), batch(scenario, timestep))
        steps.append(int(client.learner.state.steps))
    assert steps == [0, 0, 1, 1]
    assert int(client.memory.seen) == int(client.memory.class_counts.sum()) == 120
    large, _ = observe(Note(memory_size=8), deployment, begin(Note(memory_size=8), deployment), (), batch(scenario, 1))
    assert int(large.learner.state.steps) == 3


def filled(scenario, labels: torch.Tensor, size: int = 64):
    """A memory after samples of the given classes, ten at a time."""
    deployment = scenario.deployment
    memory = empty_memory(context(deployment, deployment.reference.inputs[:0]), size)
    for turn, some in enumerate(labels.split(10)):
        ctx = context(deployment, deployment.reference.inputs[: len(some)], key=torch.tensor(turn))
        answers = torch.nn.functional.one_hot(some, 10).float()
        memory, _ = remember(memory, ctx, answers, torch.zeros(len(some)), balanced_reservoir, size)
    return memory


def test_the_memory_of_a_sorted_stream_is_balanced(scenario):
    counts = filled(scenario, torch.arange(10).repeat_interleave(40)).places.per_class(10)
    assert counts.sum() == 64
    assert set(counts.tolist()) == {6, 7}


def test_a_memory_of_one_class_is_a_plain_reservoir(scenario):
    born = torch.cat([filled(scenario, torch.full((200,), label), 32).places.born for label in range(8)])
    assert 80 < born.float().mean() < 120
    assert (born < 50).float().mean() == pytest.approx(0.25, abs=0.12)
