"""What UniTTA alone promises."""

import pytest
import torch

from fedade.methods.source import Source
from fedade.methods.unitta import Domains, Unitta, middle_layer, with_spare

from ..helpers import begin, equal, predict
from .adapting import after, batch

PLAIN = {"neighbours": False}


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate")


def test_the_first_batch_fills_the_first_domain_and_leaves_the_spare_as_deployed(scenario):
    start, (client, _) = begin(Unitta(), scenario.deployment), after(Unitta(), scenario, 4)
    assert client.domains.counts.tolist() == [20, 0, 0, 0, 0, 0, 0, 0]
    assert int(client.domains.spare) == 1
    for layer, rows in client.domains.rows.items():
        assert torch.equal(rows.means[1:], start.domains.rows[layer].means[1:])
        assert not torch.equal(rows.means[0], start.domains.rows[layer].means[0])


def test_rows_that_hardly_follow_answer_as_the_source(scenario):
    method, inputs = Unitta(**PLAIN, row_rate=1e-9), batch(scenario).inputs
    found = predict(method, scenario.deployment, begin(method, scenario.deployment), (), inputs)
    torch.testing.assert_close(found, predict(Source(), scenario.deployment, (), (), inputs), atol=1e-5, rtol=1e-4)


def test_neighbours_that_are_alike_change_nothing(scenario):
    inputs = batch(scenario).inputs[:1].expand(6, -1, -1, -1)
    start = begin(Unitta(), scenario.deployment)
    both, plain = (
        predict(Unitta(neighbours=neighbours), scenario.deployment, start, (), inputs) for neighbours in (True, False)
    )
    torch.testing.assert_close(both, plain)


def made(opened: list[int], counts: list[float], spare: int) -> Domains:
    return Domains({}, torch.tensor(counts), torch.tensor(opened), torch.tensor(spare))


def test_whoever_comes_to_the_spare_opens_one_domain():
    domains = made([1, 2, 0, 0], [9.0, 0.0, 0.0, 0.0], 1)
    after_it = with_spare(domains, torch.tensor([0, 1, 1]), {})
    assert after_it.opened.tolist() == [1, 2, 3, 0]
    assert after_it.counts.tolist() == [10, 2, 0, 0]
    assert int(after_it.spare) == 2
    assert equal(with_spare(domains, torch.tensor([0]), {})._replace(counts=domains.counts), domains)


def test_without_room_the_least_used_of_the_older_half_makes_some():
    crowded = made([1, 2, 3, 4], [5.0, 3.0, 1.0, 0.0], 3)
    after_it = with_spare(crowded, torch.tensor([3]), {})
    assert after_it.opened.tolist() == [1, 5, 3, 4]
    assert after_it.counts.tolist() == [5, 0, 1, 1]
    assert int(after_it.spare) == 1


def test_domains_are_told_apart_in_the_first_layer_of_the_middle_stage(scenario):
    assert middle_layer(scenario.deployment) == "body.1.3.norm1"
