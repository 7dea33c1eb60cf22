from dataclasses import replace

import pytest
from torch import nn

from fedade.core.errors import FedadeError
from fedade.models import build
from fedade.models.image import Pixels
from fedade.parts.norm_layers import norm_affine

from .networks import with_body


@pytest.fixture(scope="module")
def deployment(scenario_factory):
    return scenario_factory().deployment


def test_all_scales_and_shifts_and_nothing_else(deployment):
    names = set(norm_affine(deployment, "tent"))
    layers = {name.removesuffix(".running_mean") for name in deployment.parameters if name.endswith("running_mean")}
    assert names == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def test_the_last_stage_of_a_resnet_is_its_widest(deployment):
    network = build("resnet18", (3, 32, 32), 10, Pixels([0.5] * 3, [0.2] * 3), 0)

    class Deployed:
        parameters = network.initial_parameters()

    Deployed.network = network
    kept = norm_affine(Deployed, "sar", include_last_stage=False)
    assert {value.numel() for value in kept.values()} == {64, 128, 256}
    assert {value.numel() for value in norm_affine(Deployed, "tent").values()} == {64, 128, 256, 512}


@pytest.mark.parametrize(("widths", "left_alone"), [([16] * 7 + [32] * 6 + [64] * 6, 0), ([8, 16], 0), ([192] * 25, 6)])
def test_networks_without_a_fourth_stage_move_all_layers_but_transformers_a_quarter_less(
    deployment, widths, left_alone
):
    layers = [module for width in widths for module in (nn.LazyConv2d(width, 1), nn.BatchNorm2d(width))]
    toy = with_body(deployment, *layers[:0])
    network = replace(toy.network, body=nn.Sequential(*layers))
    parameters = {
        f"body.{place}.{kind}": getattr(layer, kind)
        for place, layer in enumerate(layers)
        if isinstance(layer, nn.BatchNorm2d)
        for kind in ("weight", "bias")
    }
    found = norm_affine(replace(toy, network=network, parameters=parameters), "sar", include_last_stage=False)
    assert len(found) == 2 * (len(widths) - left_alone)


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.LayerNorm([4, 3, 3])])
def test_other_norms_lend_their_scales(deployment, norm):
    assert set(norm_affine(with_body(deployment, norm), "tent")) == {"body.2.weight", "body.2.bias"}


def test_equally_wide_layers_lose_their_last_quarter(deployment):
    norms = [nn.GroupNorm(2, 4) for _ in range(8)]
    assert len(norm_affine(with_body(deployment, *norms), "sar", include_last_stage=False)) == 2 * 6


def test_a_model_without_norm_layers_is_refused(deployment):
    with pytest.raises(FedadeError, match=r"tent: model 'toy' has no normalisation layer"):
        norm_affine(with_body(deployment), "tent")
    with pytest.raises(FedadeError, match="no normalisation layer"):
        norm_affine(with_body(deployment, nn.GroupNorm(2, 4, affine=False)), "tent")
