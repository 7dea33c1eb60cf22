"""What Hybrid-TTN alone promises."""

import pytest
import torch

from fedade.core.normalisation import Mixed, Statistics, batch_statistics
from fedade.methods.hybrid_ttn import HybridTtn, NearestChannels, adapted_channels
from fedade.parts.running_norms import batch_norm_layers

from ..helpers import predict
from .adapting import batch


def test_the_share_of_channels_falls_with_depth():
    layers = {str(place): Statistics(torch.zeros(64), torch.ones(64)) for place in range(20)}
    assert list(adapted_channels(layers).values())[:5] == [64, 60, 57, 53, 50]
    assert adapted_channels(layers)["19"] == 0
    assert adapted_channels({"only": Statistics(torch.zeros(8), torch.ones(8))}) == {"only": 8}


@pytest.mark.parametrize("furthest", [False, True])
def test_the_channels_that_differ_least_take_the_batchs_statistics(furthest):
    shifts = torch.tensor([3.0, 0.1, 2.0, 0.5])
    inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(1)) + shifts
    deployed = Statistics(torch.zeros(4), torch.ones(4))
    found = NearestChannels({"layer": 2}, furthest).statistics("layer", inputs, deployed)
    adapted = found.mean != 0
    assert adapted.tolist() == ([True, False, True, False] if furthest else [False, True, False, True])
    torch.testing.assert_close(found.variance[adapted], batch_statistics(inputs).variance[adapted])


def test_its_ends_are_batch_statistics_and_the_source(scenario_factory):
    scenario = scenario_factory(kind="covariate")
    deployment, inputs = scenario.deployment, batch(scenario).inputs
    layers = batch_norm_layers(deployment)
    for share, expected in ((1, Mixed(1.0)), (0, Mixed(0.0))):
        norms = NearestChannels({layer: share * len(statistics.mean) for layer, statistics in layers.items()})
        torch.testing.assert_close(
            deployment.network.logits(deployment.parameters, inputs, norms),
            deployment.network.logits(deployment.parameters, inputs, expected),
        )
    assert not torch.allclose(
        predict(HybridTtn(), deployment, (), (), inputs),
        deployment.network.logits(deployment.parameters, inputs, Mixed(1.0)).softmax(-1),
    )
