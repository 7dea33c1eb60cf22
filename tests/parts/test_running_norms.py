"""Strategies that keep statistics, against what they become at their ends."""

import pytest
import torch

from fedade.core.normalisation import Statistics, batch_statistics
from fedade.parts.running_norms import Following, InstanceAware, weighted_statistics

DEPLOYED = Statistics(torch.tensor([0.5, -1.0, 0.0]), torch.tensor([1.0, 2.0, 0.5]))


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(1)) * 1.5 + 0.3


def test_weighted_statistics_are_those_of_the_samples_that_count(inputs):
    there = torch.arange(12) % 3 != 0
    for found, expected in zip(
        weighted_statistics(inputs, there.float()), batch_statistics(inputs[there]), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("momentum", [0.0, 0.05, 1.0])
def test_following_moves_a_share_of_the_way(inputs, momentum):
    found = Following(momentum, torch.ones(12)).statistics("body.1", inputs, DEPLOYED)
    for value, old, new in zip(found, DEPLOYED, batch_statistics(inputs), strict=True):
        torch.testing.assert_close(value, (1 - momentum) * old + momentum * new)


def test_instance_aware_is_the_deployed_norm_at_one_end_and_instance_norm_at_the_other(inputs):
    patient = InstanceAware(1e9).statistics("body.1", inputs, DEPLOYED)
    assert torch.equal(patient.mean, DEPLOYED.mean.expand(12, 3))
    assert torch.equal(patient.variance, DEPLOYED.variance.expand(12, 3))
    eager = InstanceAware(0).statistics("body.1", inputs, DEPLOYED)
    torch.testing.assert_close(eager.mean, inputs.mean((2, 3)))
    torch.testing.assert_close(eager.variance, inputs.var((2, 3)))


def test_instance_aware_leaves_chance_alone_and_halves_a_shift_of_one():
    pixels = torch.randn(400, 5, 8, 8, generator=torch.Generator().manual_seed(2))
    deployed = Statistics(torch.zeros(5), torch.ones(5))
    quiet = InstanceAware(4).statistics("body.1", pixels, deployed)
    assert (quiet.mean != 0).float().mean() < 1e-3
    shifted = InstanceAware(4).statistics("body.1", pixels + 1, deployed)
    assert float((pixels + 1).mean() - shifted.mean.mean()) == pytest.approx(0.5, abs=0.02)


def test_a_plane_of_one_pixel_has_no_statistics_of_its_own(inputs):
    found = InstanceAware(0).statistics("body.1", inputs[..., 0, 0], DEPLOYED)
    assert found == DEPLOYED
