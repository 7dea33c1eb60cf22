"""Statistics of each sample's own, as far as samples differ more than those of the reference set."""

import numpy as np
import pytest
import torch
from torch import nn

import fedade
from fedade.core.normalisation import Statistics
from fedade.methods.fed_ade_plus import own_statistics
from fedade.methods.fed_ade_plus.class_moments import plain_layers, reference_moments, sample_spreads
from fedade.methods.fed_ade_plus.corrected_normalisation import (
    corrected_pass,
    deployed_statistics,
    no_residuals,
    own_by_name,
    settled,
    settled_pass,
)
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.fed_ade_plus.own_statistics import JUDGED_BY, as_usual, of_samples, own_moments, spread

from ...helpers import Seen, begin, context, observe, predict

CHANNELS, PIXELS = 6, 64


def images(samples, seed, offsets=0.0, scales=1.0):
    """Images whose means and deviations differ from each other as natural ones do, `[n, C, pixels]`."""
    generator = torch.Generator().manual_seed(seed)
    mean, width = (torch.randn(samples, CHANNELS, 1, generator=generator) for _ in range(2))
    pixels = torch.randn(samples, CHANNELS, PIXELS, generator=generator)
    return scales * (0.3 * mean + (1 + 0.1 * width) * pixels) + offsets


def moments_of(values):
    return torch.stack((values.mean(-1), values.square().mean(-1)))


def common_of(values):
    return Statistics(values.mean((0, 2)), values.var((0, 2), correction=0))


USUAL, AS_USUAL = spread(moments_of(images(4000, 0))), torch.ones(2)


def normalised(values):
    mean, variance = of_samples(common_of(values), moments_of(values), USUAL, AS_USUAL).statistics
    return (values - mean.unsqueeze(-1)) / variance.unsqueeze(-1).sqrt()


def test_samples_that_differ_as_usual_have_the_statistics_in_common():
    values = images(2000, 1)
    share, (mean, variance), *_ = of_samples(common_of(values), moments_of(values), USUAL, AS_USUAL)
    assert (share[1] == 0).all()
    common = common_of(values)
    torch.testing.assert_close(mean, common.mean.expand_as(mean))
    torch.testing.assert_close(variance, common.variance.expand_as(variance))


def test_samples_of_several_conditions_come_out_nearly_as_if_each_condition_were_alone():
    kinds = [(0.0, 1.0), (5.0, 0.3), (-4.0, 2.0)]
    alone = [images(200, seed, *kind) for seed, kind in enumerate(kinds)]
    apart = torch.cat([(each - each.mean()) / each.std() for each in alone])
    together = torch.cat(alone)
    common = common_of(together)
    mixed = (together - common.mean[:, None]) / common.variance[:, None].sqrt()
    error, before = ((found - apart).square().mean() for found in (normalised(together), mixed))
    assert error < 0.25 * before


def test_the_order_of_samples_and_which_channels_lie_beside_does_not_matter():
    values = torch.cat([images(20, 3), images(20, 4, 3.0)])
    order, places = torch.randperm(40), torch.tensor([3, 1])
    torch.testing.assert_close(normalised(values[order]), normalised(values)[order])
    common, moments = common_of(values), moments_of(values)
    picked = Statistics(*(part[places] for part in common))
    some = of_samples(picked, moments[..., places], USUAL[..., places], AS_USUAL)
    torch.testing.assert_close(some[1].mean, of_samples(common, moments, USUAL, AS_USUAL)[1].mean[:, places])


def test_layers_judge_together_whether_samples_came_under_several_conditions():
    """One channel in which samples differ by chance is not enough, unless an earlier layer has shown it."""
    values = images(200, 3)
    values[:, 0] += 0.5 * torch.randn(200, 1, generator=torch.Generator().manual_seed(1))
    common, moments = common_of(values), moments_of(values)
    assert own_moments(moments).var(-2)[0, 0] > 2 * own_statistics.DOUBT * USUAL[0, 0]
    alone, after = (of_samples(common, moments, USUAL, AS_USUAL, earlier) for earlier in (None, torch.tensor(1.6)))
    assert 1 < alone.difference < own_statistics.DOUBT
    assert (alone.share[1] == 0).all()
    assert alone.statistics.mean.equal(common.mean.expand(200, -1))
    assert float(after.difference) == pytest.approx(1.6)
    assert after.share[1, 0, 0] > 0.3
    assert after.share[1, 0, 1:].max() < 0.3


def test_few_samples_are_judged_together_with_those_before():
    """Six samples of two conditions in an unlucky batch of a client whose samples differed as usual so far, and again
    and again of a client of whom every batch is mixed."""
    values = torch.cat([images(3, 3), images(3, 4, 1.2)])
    common, moments = common_of(values), moments_of(values)
    once = of_samples(common, moments, USUAL, AS_USUAL)
    now = (own_moments(moments).var(-2) / USUAL).mean(-1)
    assert now.amax() > own_statistics.DOUBT
    torch.testing.assert_close(once.apart, AS_USUAL + 6 / JUDGED_BY * (now - AS_USUAL))
    assert once.difference == once.apart.amax() < own_statistics.DOUBT
    assert (once.share[1] == 0).all()
    before = AS_USUAL
    for _ in range(20):
        often = of_samples(common, moments, USUAL, before)
        before = often.apart
    assert often.difference > own_statistics.DOUBT
    assert often.share[1].amax() > 0.3


def test_of_many_samples_what_was_before_says_nothing():
    values = images(JUDGED_BY, 9)
    common, moments = common_of(values), moments_of(values)
    as_usual, before = (of_samples(common, moments, USUAL, was * AS_USUAL) for was in (1.0, 9.0))
    torch.testing.assert_close(as_usual, before, rtol=0, atol=0)


def test_a_channel_that_no_sample_moved_is_not_removed_by_the_first_that_does():
    values = images(100, 5)
    values[:, 0] = 0.0
    usual = spread(moments_of(values))
    assert (usual > 0).all()


def test_variances_stay_positive_however_far_samples_are_apart():
    values = torch.cat([images(30, 6, scales=0.0), images(1, 7, scales=1000.0)])
    _, (_, variance), *_ = of_samples(common_of(values), moments_of(values), USUAL, AS_USUAL)
    assert (variance > 0).all()


def test_means_and_variances_are_those_of_the_pixels():
    values = images(5, 8)
    mean, variance = own_moments(moments_of(values))
    torch.testing.assert_close(mean, values.mean(-1))
    torch.testing.assert_close(variance, values.var(-1, correction=0))


@pytest.fixture
def mixed(scenario_factory):
    """A deployment and a batch of which every other sample is darker and paler."""
    scenario = scenario_factory(kind="none", samples=40)
    inputs = scenario.streams.draw(np.arange(1), 4).inputs[0].clone()
    inputs[::2] = 0.3 * inputs[::2] - 0.5
    return scenario.deployment, inputs


def found_in(deployment, inputs, each_sample):
    layers, past = frozenset(reference_moments(deployment)), no_residuals(deployment)
    apart = as_usual(sample_spreads(deployment)) if each_sample else ()
    return corrected_pass(
        deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1.0, past, apart=apart
    )


def shares_of(deployment, statistics):
    """Base and share of each layer, found in the one tensor that holds them all."""
    layers = {layer: apart.shape[-1] for layer, apart in sample_spreads(deployment).items()}
    parts = torch.split(statistics[own_statistics.NAME], [4 * channels for channels in layers.values()])
    return {layer: part.view(2, 2, -1) for layer, part in zip(layers, parts, strict=True)}


def test_only_layers_that_tell_no_classes_apart_have_them(mixed):
    deployment, inputs = mixed
    spreads = sample_spreads(deployment)
    assert spreads.keys() == plain_layers(deployment)
    found, without = (found_in(deployment, inputs, each_sample) for each_sample in (True, False))
    first = own_by_name(deployment, {})
    assert found.statistics.keys() == deployed_statistics(deployment).keys() | first.keys()
    assert without.statistics.keys() == deployed_statistics(deployment).keys()
    assert first.keys() == {own_statistics.NAME}
    assert found.statistics[own_statistics.NAME].shape == first[own_statistics.NAME].shape
    assert any((share > 0).any() for _, share in shares_of(deployment, found.statistics).values())
    assert not torch.allclose(found.logits, without.logits)


def test_a_pass_can_be_repeated_with_what_it_found(mixed):
    deployment, inputs = mixed
    found = found_in(deployment, inputs, True)
    again = settled_pass(context(deployment, inputs), deployment.parameters, found.statistics, keeps_body=True)
    torch.testing.assert_close(again, found.logits, atol=1e-4, rtol=1e-3)
    untouched = {**deployed_statistics(deployment), **own_by_name(deployment, {})}
    source = settled_pass(context(deployment, inputs), deployment.parameters, untouched, keeps_body=True)
    torch.testing.assert_close(source, deployment.network.logits(deployment.parameters, inputs), atol=1e-4, rtol=1e-3)


def test_a_layer_that_was_not_corrected_has_its_statistics_in_common(mixed):
    deployment, inputs = mixed
    layers = frozenset(list(sample_spreads(deployment))[:1])
    found = corrected_pass(
        deployment, deployment.parameters, inputs, deployment.source_prior, layers, 1.0, no_residuals(deployment),
        apart=as_usual(sample_spreads(deployment)),
    )  # fmt: skip
    first = shares_of(deployment, own_by_name(deployment, {}))
    moved = {layer for layer, own in shares_of(deployment, found.statistics).items() if not own.equal(first[layer])}
    assert moved == layers


def test_each_layer_is_given_its_own_part_of_what_is_known(mixed):
    deployment, inputs = mixed
    found = found_in(deployment, inputs, True)
    strategy, generator = settled(deployment, found.statistics), torch.Generator().manual_seed(0)
    for layer, (base, share) in shares_of(deployment, found.statistics).items():
        images = torch.randn(3, base.shape[-1], 4, 4, generator=generator)
        deployed = Statistics(torch.zeros(base.shape[-1]), torch.full((base.shape[-1],), 1e-6))
        mean, variance = strategy.statistics(layer, images, deployed)
        torch.testing.assert_close(mean, base[0] + share[0] * images.mean((2, 3)))
        expected = base[1] + share[1] * images.var((2, 3), correction=0)
        torch.testing.assert_close(variance, expected.clamp(min=own_statistics.LEAST_VARIANCE * 1e-6))


def test_a_client_scores_the_batch_that_it_observed_without_another_pass(mixed):
    deployment, inputs = mixed
    method = FedAdePlus(each_sample=True)
    ctx = context(deployment, inputs)
    state, _ = method.observe(ctx, method.begin(ctx))
    known = method.predict(ctx.after_observing(), state)
    torch.testing.assert_close(known, method.predict(context(deployment, inputs), state), atol=1e-4, rtol=1e-3)


def test_one_sample_has_no_others_to_differ_from(mixed):
    deployment, inputs = mixed
    found = []
    for each_sample in (True, False):
        method = FedAdePlus(each_sample=each_sample)
        state, _ = observe(
            method, deployment, begin(method, deployment), {}, Seen(inputs[:1], torch.tensor(1), torch.tensor(7))
        )
        found.append(predict(method, deployment, state, {}, inputs[:1]))
        assert state.statistics.keys() == begin(method, deployment).statistics.keys()
    torch.testing.assert_close(*found)


def test_names_are_none_of_a_models(mixed):
    deployment, _ = mixed
    assert own_statistics.NAME not in deployment.parameters


def test_a_sample_of_one_number_a_channel_has_no_variance_to_tell_its_condition_by():
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    deployment = fedade.deploy(network, (torch.rand(60, 4), torch.arange(60) % 3))
    assert reference_moments(deployment)
    assert sample_spreads(deployment) == {}
    method, inputs = FedAdePlus(each_sample=True), 5 * torch.rand(20, 4)
    ctx = context(deployment, inputs)
    state, _ = method.observe(ctx, method.begin(ctx))
    assert state.statistics.keys() == deployed_statistics(deployment).keys()
