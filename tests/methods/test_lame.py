"""What LAME alone promises."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import normalize

from fedade.methods.lame import Lame, drawn_together
from fedade.methods.source import Source

from ..helpers import mean, run


@pytest.fixture
def features() -> torch.Tensor:
    return normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(1)), dim=-1)


@pytest.fixture
def probabilities() -> torch.Tensor:
    return torch.randn(20, 4, generator=torch.Generator().manual_seed(2)).softmax(-1)


def test_two_samples_that_are_close_agree_as_worked_out_by_hand():
    given, close = torch.tensor([[0.9, 0.1], [0.45, 0.55]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    expected = torch.tensor([[0.9249, 0.0751], [0.6568, 0.3432]])
    torch.testing.assert_close(drawn_together(given, close, 100), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(drawn_together(given, torch.zeros(2, 2), 100), given, atol=1e-6, rtol=0)


def test_samples_that_are_all_alike_get_one_class(probabilities):
    assert len(drawn_together(probabilities, torch.ones(20, 20), 100).argmax(-1).unique()) == 1


def test_the_objective_never_rises(features, probabilities):
    close = Lame().affinities(features)

    def objective(answers: torch.Tensor) -> torch.Tensor:
        apart = (answers * (answers / probabilities).log()).sum()
        return apart - 0.5 * (close * (answers @ answers.T)).sum()

    values = [float(objective(drawn_together(probabilities, close, steps))) for steps in range(12)]
    assert all(later <= earlier + 1e-4 for earlier, later in pairwise(values))
    assert values[-1] < values[0]


@pytest.mark.parametrize("affinity", ["rbf", "knn", "linear"])
def test_the_order_of_the_samples_does_not_matter(features, probabilities, affinity):
    method, order = Lame(affinity=affinity), torch.randperm(20, generator=torch.Generator().manual_seed(3))
    straight = drawn_together(probabilities, method.affinities(features), 20)
    turned = drawn_together(probabilities[order], method.affinities(features[order]), 20)
    torch.testing.assert_close(turned, straight[order], atol=1e-4, rtol=1e-3)


def test_neighbours_are_the_nearest_others(features):
    close = Lame(affinity="knn", neighbours=3).affinities(features)
    assert (close.sum(-1) == 3).all()
    assert (close.diagonal() == 0).all()


@pytest.mark.parametrize("affinity", ["rbf", "knn"])
def test_a_single_sample_and_equal_samples_are_left_alone_or_agree(affinity):
    assert torch.equal(Lame(affinity=affinity).affinities(torch.ones(1, 4) / 2), torch.zeros(1, 1))
    assert Lame(affinity=affinity).affinities(torch.ones(3, 4) / 2).isfinite().all()


def test_it_helps_where_classes_are_uneven_and_hurts_where_they_are_even(scenario_factory):
    scenario = scenario_factory(kind="label", schedule="squ", samples=40, num_timesteps=4)
    gains = [
        mean([ours], "accuracy_post") - mean([theirs], "accuracy_post")
        for ours, theirs in zip(run(Lame(affinity="knn"), scenario), run(Source(), scenario), strict=True)
    ]
    uneven, even = gains[0::2], gains[1::2]
    assert min(uneven) > 0.03
    assert max(even) < 0
