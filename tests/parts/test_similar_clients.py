"""Averages of similar clients."""

import pytest
import torch

from fedade.parts.similar_clients import distances, median_distance, mixed, similarity_weights


def test_rows_sum_to_one_and_equal_clients_count_alike():
    vectors = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(similarity_weights(distances(vectors), 1.0).sum(-1), torch.ones(5))
    alike = similarity_weights(distances(vectors[:1].expand(5, 4)), 1.0)
    torch.testing.assert_close(alike, torch.full((5, 5), 0.2))
    values = {"weight": torch.full((5, 2, 3), 7.0)}
    torch.testing.assert_close(mixed(alike, values)["weight"], values["weight"])


def test_a_client_far_away_keeps_its_own():
    vectors = torch.tensor([[0.0], [0.1], [100.0]])
    values = mixed(similarity_weights(distances(vectors), 1.0), torch.tensor([[1.0], [3.0], [9.0]]))
    torch.testing.assert_close(values[2], torch.tensor([9.0]))
    assert 1 < values[0] < values[1] < 3


@pytest.mark.parametrize(("places", "median"), [([0.0, 1.0, 5.0], 4.0), ([0.0, 2.0], 2.0), ([3.0], 0.0)])
def test_the_median_is_over_pairs(places, median):
    assert median_distance(distances(torch.tensor(places).unsqueeze(-1))) == median
