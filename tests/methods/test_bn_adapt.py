"""What adapting BatchNorm statistics alone promises."""

import numpy as np
import pytest
import torch
from torch import nn

from fedade.core import tree
from fedade.core.normalisation import Mixed, RecordingStatistics
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.source import Source

from ..helpers import Seen, begin, final_world, mean, observe, predict, run
from ..parts.networks import with_body

MODES = ("batch", "mix", "ema")


def batch_of(scenario, timestep: int = 3):
    return scenario.streams.draw(np.arange(1), timestep).inputs[0]


def test_batch_mode_helps_corrupted_inputs_and_hurts_shifted_labels(scenario_factory):
    corrupted = scenario_factory(kind="covariate", samples=30)
    relabelled = scenario_factory(kind="label", samples=30)
    method = BnAdapt(mode="batch")
    assert mean(run(method, corrupted)[-1:], "accuracy_post") > mean(run(Source(), corrupted)[-1:], "accuracy_post")
    assert mean(run(method, relabelled)[-1:], "accuracy_post") < mean(run(Source(), relabelled)[-1:], "accuracy_post")


def test_the_weight_of_a_mix_can_depend_on_the_batch_size(scenario_factory):
    scenario = scenario_factory()
    deployment, inputs = scenario.deployment, batch_of(scenario)
    expected = deployment.network.logits(deployment.parameters, inputs, Mixed(20 / 36)).softmax(-1)
    assert torch.equal(predict(BnAdapt(source_samples=16), deployment, {}, (), inputs), expected)
    assert not torch.allclose(predict(BnAdapt(), deployment, {}, (), inputs), expected, atol=1e-3)


def test_running_statistics_are_the_average_of_the_stream(scenario_factory):
    scenario = scenario_factory(kind="covariate")
    deployment = scenario.deployment
    # The first layer sees the pixels alone, whatever the statistics of the others are.
    first = next(name for name in deployment.parameters if name.endswith("running_mean"))
    expected = deployment.parameters[first]
    for timestep in range(1, 5):
        recording = RecordingStatistics()
        deployment.network.represent(deployment.parameters, batch_of(scenario, timestep), recording)
        expected = 0.7 * expected + 0.3 * recording.seen[first.removesuffix(".running_mean")].mean
    kept = final_world(BnAdapt(mode="ema", momentum=0.3), scenario).clients[first][0]
    torch.testing.assert_close(kept, expected, atol=1e-5, rtol=1e-4)


def test_weight_0_is_the_source(scenario_factory):
    scenario = scenario_factory(kind="both")
    for method in (BnAdapt(mix_weight=0.0), BnAdapt(mode="ema", momentum=0.0)):
        assert mean(run(method, scenario), "accuracy_post") == mean(run(Source(), scenario), "accuracy_post")


@pytest.mark.parametrize("mode", ["batch", "ema"])  # of the default the contract says it
def test_clients_together_are_clients_alone_and_one_sample_is_enough(scenario_factory, mode):
    scenario, method = scenario_factory(kind="both"), BnAdapt(mode=mode)
    together, apart = final_world(method, scenario), final_world(method, scenario, vectorised=False)
    for one, other in zip(tree.leaves(together.clients), tree.leaves(apart.clients), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    for rows in run(method, scenario_factory(samples=1, num_timesteps=2)):
        assert all(np.isfinite(values).all() for values in rows.values())


@pytest.mark.parametrize("mode", MODES)
def test_a_model_without_batch_norm_predicts_as_the_source_and_says_so(scenario_factory, mode):
    scenario, method = scenario_factory(), BnAdapt(mode=mode)
    deployment, inputs = with_body(scenario.deployment, nn.GroupNorm(2, 4)), batch_of(scenario, 1)
    with pytest.warns(RuntimeWarning, match="bn-adapt: model 'toy' has no BatchNorm .*predicts as source"):
        client = begin(method, deployment)
    client, _ = observe(method, deployment, client, (), Seen(inputs, torch.tensor(1), torch.tensor(0)))
    assert client == {}
    assert torch.equal(predict(method, deployment, client, (), inputs), predict(Source(), deployment, (), (), inputs))
