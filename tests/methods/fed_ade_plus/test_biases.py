"""How much predictions may be biased that were made before any layer was corrected."""

import numpy as np
import pytest
import torch

from fedade.core.normalisation import Statistics
from fedade.methods.fed_ade_plus import method as fed_ade_plus
from fedade.methods.fed_ade_plus.class_moments import expected_under, reference_moments
from fedade.methods.fed_ade_plus.corrected_normalisation import UNCORRECTED_BIAS, uncorrected_bias, unexplained
from fedade.methods.fed_ade_plus.layer_statistics import SeenLayer
from fedade.methods.fed_ade_plus.method import FedAdePlus

from ...helpers import begin, context


@pytest.fixture
def deployment(scenario_factory):
    return scenario_factory().deployment


def shown(deployment, prior, inputs=0.0):
    """What the layers show under a class mix, moved by so many deviations of a sample."""
    seen = {}
    for layer, moments in reference_moments(deployment).items():
        expected = expected_under(prior, moments)
        seen[layer] = SeenLayer(expected.mean + inputs * expected.spread.sqrt(), Statistics(*expected.mean))
    return seen


def only(deployment, label):
    return torch.nn.functional.one_hot(torch.tensor(label), deployment.num_classes).to(deployment.source_prior.dtype)


def test_classes_that_explain_the_layers_leave_no_bias(deployment):
    prior = only(deployment, 2)
    assert unexplained(deployment, shown(deployment, prior), prior) < 1e-6
    assert uncorrected_bias(deployment, shown(deployment, prior), prior) < 1e-6


def test_the_source_classes_and_those_that_explain_nothing_leave_it_whole(deployment):
    seen = shown(deployment, only(deployment, 2))
    assert unexplained(deployment, seen, deployment.source_prior) == 1
    assert unexplained(deployment, seen, only(deployment, 5)) > 0.6
    assert uncorrected_bias(deployment, seen, deployment.source_prior) == UNCORRECTED_BIAS


def test_the_more_inputs_changed_beside_the_classes_the_more_is_left(deployment):
    prior = only(deployment, 2)
    left = [float(unexplained(deployment, shown(deployment, prior, change), prior)) for change in (0.0, 0.3, 1.0, 5.0)]
    assert left == sorted(left)
    assert left[-1] > 0.5


def test_without_plain_layers_biased_predictions_do_not_choose_the_classes(scenario_factory, monkeypatch):
    """With none corrected before, all layers say how far the first predictions may be biased."""
    scenario = scenario_factory(kind="covariate", samples=40)
    deployment, method, corrected_pass = scenario.deployment, FedAdePlus(), fed_ade_plus.corrected_pass
    corrected_for = []

    def recorded(deployment, model, inputs, prior, layers, *others):
        if layers:
            corrected_for.append((prior - deployment.source_prior).abs().sum())
        return corrected_pass(deployment, model, inputs, prior, layers, *others)

    def moved():
        corrected_for.clear()
        for inputs in scenario.streams.draw(np.arange(6), scenario.streams.num_timesteps).inputs:
            method.observe(context(deployment, inputs), begin(method, deployment))
        assert corrected_for
        return torch.stack(corrected_for).mean()

    monkeypatch.setattr(fed_ade_plus, "plain_layers", lambda _: frozenset())
    monkeypatch.setattr(fed_ade_plus, "corrected_pass", recorded)
    doubted = moved()
    monkeypatch.setattr(fed_ade_plus, "uncorrected_bias", lambda *_: 0.0)
    assert doubted < 0.8 * moved()
