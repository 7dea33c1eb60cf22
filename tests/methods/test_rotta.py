"""What RoTTA alone promises."""

import numpy as np
import pytest
import torch

from fedade.core.normalisation import RecordingStatistics
from fedade.methods.rotta import Rotta, balanced_fresh_and_certain
from fedade.methods.source import Source
from fedade.parts.sample_memory import EMPTY, Newcomer, Places, empty_memory, remember

from ..helpers import begin, context, equal, predict
from . import adapting


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", samples=32)


def after(method: Rotta, scenario, batches: int):
    return adapting.after(method, scenario, *range(1, batches + 1))[0]


def test_before_a_full_period_it_is_the_source(scenario):
    inputs = scenario.streams.draw(np.arange(1), 4).inputs[0]
    expected = predict(Source(), scenario.deployment, (), (), inputs)
    assert torch.equal(predict(Rotta(), scenario.deployment, after(Rotta(), scenario, 1), (), inputs), expected)
    assert not torch.equal(predict(Rotta(), scenario.deployment, after(Rotta(), scenario, 2), (), inputs), expected)


def test_a_teacher_that_never_listens_keeps_its_scales_and_moves_its_statistics(scenario):
    client, start = after(Rotta(teacher_rate=0), scenario, 4), begin(Rotta(), scenario.deployment)
    assert equal(client.teacher, start.teacher)
    assert not equal(client.student.own, start.student.own)
    assert not equal(client.teacher_statistics, start.teacher_statistics)
    still = after(Rotta(teacher_rate=0, statistics_momentum=0), scenario, 4)
    assert equal(still.teacher_statistics, start.teacher_statistics)


def test_empty_places_do_not_count(scenario):
    client = after(Rotta(memory_size=32, statistics_momentum=1.0), scenario, 1)
    there, recording = client.memory.places.taken, RecordingStatistics()
    assert not there.all()
    scenario.deployment.network.represent(scenario.deployment.parameters, client.memory.inputs[there], recording)
    first = next(iter(recording.seen))
    torch.testing.assert_close(client.teacher_statistics[f"{first}.running_mean"], recording.seen[first].mean)
    torch.testing.assert_close(client.teacher_statistics[f"{first}.running_var"], recording.seen[first].variance)


def stored(scenario, labels: torch.Tensor, uncertainty: torch.Tensor, classes: int, size: int = 64) -> Places:
    deployment = scenario.deployment
    ctx = context(deployment, deployment.reference.inputs[torch.zeros(len(labels), dtype=torch.int64)])
    memory = empty_memory(ctx, size)._replace(class_counts=torch.zeros(classes, dtype=torch.int64))
    answers = torch.nn.functional.one_hot(labels, classes).float()
    return remember(memory, ctx, answers, uncertainty, balanced_fresh_and_certain, size)[0].places


def test_classes_share_the_places_evenly(scenario):
    draws = torch.Generator().manual_seed(1)
    counts = stored(
        scenario, torch.randint(10, (400,), generator=draws), torch.rand(400, generator=draws), 10
    ).per_class(10)
    assert counts.sum() == 64
    assert set(counts.tolist()) <= {6, 7}
    sparse = stored(scenario, torch.randint(100, (400,), generator=draws), torch.rand(400, generator=draws), 100)
    assert sparse.per_class(100).max() == 1
    one_class = stored(scenario, torch.zeros(64, dtype=torch.int64), torch.rand(64, generator=draws), 10)
    assert one_class.taken.sum() == 7


def test_the_oldest_and_least_certain_gives_way():
    places = Places(
        torch.tensor([0, 0, 1, EMPTY]), torch.tensor([0.2, 0.9, 0.95, 0.0]), torch.tensor([3, 3, 3, 0]), torch.zeros(4)
    )
    newcomer = Newcomer(torch.tensor(0), torch.tensor(0.3), torch.zeros(5), torch.tensor(4), torch.tensor(3))
    assert balanced_fresh_and_certain(places, newcomer, 2).tolist() == [False, True, False, False]
    unsure = newcomer._replace(uncertainty=torch.tensor(1.0))
    assert not balanced_fresh_and_certain(places, unsure, 2).any()
    other = newcomer._replace(label=torch.tensor(1))
    assert balanced_fresh_and_certain(places, other, 2).tolist() == [False, False, False, True]
