"""Batches and models at the edge: no spread, no features, no sample of a class. Never NaN."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedade.core import tree
from fedade.core.deployment import Reference
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.cotta import Cotta
from fedade.methods.sar import Sar
from fedade.methods.tent import Tent
from fedade.methods.uda import Uda
from fedade.methods.unida import Unida

from ..helpers import Seen, begin, observe, predict
from ..parts.networks import with_body

FAST = {"rate": {"low": 1e-3, "mid": 1e-2, "high": 1e-1}, "steps": 2}
ALIGNING = [Uda(**FAST), Unida(**FAST)]
NORMALISING = [*(BnAdapt(mode=mode) for mode in ("batch", "mix", "ema")), Tent(), Sar(), Cotta(views=2)]


def named(methods):
    return [pytest.param(method, id=method.card.summary) for method in methods]


def stays_finite(method, deployment, inputs) -> bool:
    client = begin(method, deployment)
    for turn in range(3):
        client, plan = observe(method, deployment, client, (), Seen(inputs, torch.tensor(turn), torch.tensor(turn)))
        known = (client, plan, predict(method, deployment, client, (), inputs))
        if not all(torch.isfinite(leaf).all() for leaf in tree.leaves(known)):
            return False
    return True


@pytest.mark.parametrize("method", named(ALIGNING + NORMALISING))
@pytest.mark.parametrize("level", [0, 255])
def test_equal_black_or_white_images(scenario_factory, method, level):
    inputs = torch.full((5, 1, 8, 8), level, dtype=torch.uint8)
    assert stays_finite(method, scenario_factory().deployment, inputs)


@pytest.mark.parametrize("method", named(ALIGNING))
def test_features_that_are_all_0(scenario_factory, method):
    deployment = with_body(scenario_factory().deployment, nn.GroupNorm(2, 4))
    deployment.parameters["body.2.bias"] = torch.full((4,), -100.0)
    features = deployment.network.represent(deployment.parameters, deployment.reference.inputs)
    assert not features.any()
    assert stays_finite(method, deployment, deployment.reference.inputs[:5])


@pytest.mark.parametrize("method", named(ALIGNING))
def test_a_reference_set_of_a_single_class(scenario_factory, method):
    deployment = scenario_factory().deployment
    single = deployment.reference.labels == 3
    reference = Reference(deployment.reference.inputs[single], deployment.reference.labels[single])
    assert stays_finite(method, replace(deployment, reference=reference), deployment.reference.inputs)
