"""What TRIBE alone promises."""

import pytest
import torch

from fedade.methods.source import Source
from fedade.methods.tribe import Tribe

from ..helpers import begin, equal, predict
from .adapting import after, batch


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate")


def test_a_fresh_client_is_the_source(scenario):
    inputs = batch(scenario).inputs
    found = predict(Tribe(), scenario.deployment, begin(Tribe(), scenario.deployment), (), inputs)
    torch.testing.assert_close(found, predict(Source(), scenario.deployment, (), (), inputs))


def test_without_a_certain_sample_only_statistics_move(scenario):
    method = Tribe(reliable_entropy=1e-9)
    client, plan = after(method, scenario, 1, 2)
    start = begin(method, scenario.deployment)
    assert plan["reliable"] == 0
    assert equal(client.learner, start.learner)
    for rows in (client.teacher, client.student, client.anchor):
        assert not equal(rows, start.teacher)


def test_the_anchor_holds_the_teacher(scenario):
    free, held = (after(Tribe(anchoring=pull, reliable_entropy=2), scenario, 1, 2)[0] for pull in (0.0, 50.0))
    assert not equal(free.learner.own, held.learner.own)
    deployed = begin(Tribe(), scenario.deployment).learner.own
    away = [
        sum(float((value - deployed[name]).square().sum()) for name, value in client.learner.own.items())
        for client in (free, held)
    ]
    assert away[1] < away[0]
    assert not equal(free.teacher, free.student)
