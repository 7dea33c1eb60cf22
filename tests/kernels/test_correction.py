"""One kernel corrects a layer as the method itself does step by step, for one client and for many."""

import importlib

import pytest
import torch
from torch.func import vmap

from fedade import kernels
from fedade.core.normalisation import Statistics
from fedade.methods.fed_ade_plus import own_statistics
from fedade.methods.fed_ade_plus.class_moments import FEATURES, ClassMoments, LayerGroup
from fedade.methods.fed_ade_plus.conditions import Residual
from fedade.methods.fed_ade_plus.layer_statistics import PriorCorrected
from fedade.methods.fed_ade_plus.own_statistics import OwnStatistics

pytest.importorskip("triton")

CLASSES, SAMPLES = 5, 20
CHANNELS = {"narrow": 3, "usual": 16, "odd": 33}


def group_of(names, recognises):
    generator = torch.Generator().manual_seed(len(names))
    channels = {name: CHANNELS.get(name, 7) for name in names}
    number = sum(channels.values())
    moments = ClassMoments(
        torch.randn(2, CLASSES, number, generator=generator),
        torch.rand(2, number, generator=generator) + 0.1,
        torch.rand(CLASSES, generator=generator),
    )
    places = torch.arange(len(channels)).repeat_interleave(torch.tensor(list(channels.values())))
    return LayerGroup(channels, moments, places, recognises)


def given_of(group, conditions, clients=(2, 3), samples=SAMPLES):
    """What clients have seen and know: some conditions were never met, and some resemble the batch."""
    generator = torch.Generator().manual_seed(conditions)

    def drawn(*shape):
        return torch.randn(*clients, *shape, generator=generator)

    number = len(group.layer_of_channel)
    shown, prior = drawn(2, samples, number), drawn(CLASSES).softmax(-1)
    left = shown.mean(-2) - torch.einsum("...k,bkc->...bc", prior, group.moments.means.float())
    resembling = left.unsqueeze(-3) + 0.3 * drawn(conditions, 2, number)
    sizes = torch.where(drawn(conditions, 1, 1) > 0, resembling, drawn(conditions, 2, number))
    counts = (100 * drawn(conditions, 1, 1)).clamp(min=0).expand(*clients, conditions, 2, len(group.channels))
    return shown, prior, Residual(sizes, counts.clone())


def corrections(group, doubt, apart=False, evenness=None):
    """What a batch leaves in all layers of one client, one after the other."""
    generator = torch.Generator().manual_seed(0)
    deployed = {name: torch.rand(2, size, generator=generator) + 0.5 for name, size in group.channels.items()}

    def corrected(shown, prior, past):
        spreads = dict(zip(group.channels, group.by_layer(group.moments.within), strict=True)) if apart else {}
        before = {name: torch.tensor([0.7, 1.4]) for name in spreads}
        strategy = PriorCorrected(
            [(group, past)], prior, frozenset(group.channels), SAMPLES, doubt, spreads, dict(before), evenness
        )
        each = [
            strategy.corrected(layer, moments, Statistics(*deployed[layer]))
            for layer, moments in zip(group.channels, group.by_layer(shown), strict=True)
        ]
        remembered = strategy.remembered([group], (past,))
        return (
            strategy.found,
            each,
            strategy.own,
            strategy.trusts,
            strategy.residuals,
            strategy.evidence and strategy.evidence[-1][:2],
            remembered,
            strategy.differences,
            strategy.apart,
        )

    return corrected


@pytest.mark.parametrize(("apart", "evenness"), [(False, None), (True, None), (False, 1 / CLASSES)])
@pytest.mark.parametrize("doubt", [0.0, 2.0])
@pytest.mark.parametrize(
    ("names", "recognises", "conditions"),
    [(tuple(CHANNELS), True, 3), (tuple(CHANNELS), True, 1), (("odd", "usual"), False, 1), ((FEATURES,), False, 1)],
)
def test_layers_are_corrected_as_step_by_step(monkeypatch, names, recognises, conditions, doubt, apart, evenness):
    group = group_of(names, recognises)
    given, one = given_of(group, conditions), corrections(group, doubt, apart, evenness)
    everything = {}
    monkeypatch.setattr(importlib.import_module("fedade.kernels.own_lanes"), "MOST_SAMPLES", 8)
    for fused in (False, True):
        monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor, fused=fused: fused)
        if fused:
            monkeypatch.setattr(PriorCorrected, "known", None)  # is not asked
        with torch.no_grad():
            alone = one(given[0][1, 2], given[1][1, 2], Residual(*(values[1, 2] for values in given[2])))
            everything[fused] = vmap(vmap(one))(*given), alone
    torch.testing.assert_close(everything[True], everything[False], atol=1e-5, rtol=1e-4)


def test_clients_may_share_what_they_know(monkeypatch):
    group = group_of(tuple(CHANNELS), True)
    (shown, priors, past), one = given_of(group, 2, (3,)), corrections(group, 2.0)
    common = Residual(*(values[0] for values in past))
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: True)
    with torch.no_grad():
        together = vmap(one, (1, None, None))(shown.movedim(0, 1).contiguous(), priors[0], common)
        apart = [one(own, priors[0], common) for own in shown]
    for place, alone in enumerate(apart):
        for layer, found in alone[0].items():
            torch.testing.assert_close(found.mean, together[0][layer].mean[place])


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("channels", [3, 64])
def test_statistics_that_are_known_follow_from_moments_as_step_by_step(monkeypatch, channels, common):
    generator = torch.Generator().manual_seed(channels)
    shown = torch.randn(2, 2, 3, SAMPLES, channels, generator=generator)  # moments of all clients come first
    known = torch.randn(2, 3, 5 + 4 * channels, generator=generator)
    variance = torch.rand(2, 3, channels, generator=generator)

    def one(moments, known, variance):
        strategy = OwnStatistics(known, {"before": 1, "layer": channels})
        monkeypatch.setattr(own_statistics, "sample_moments", lambda _images: moments)
        return strategy.statistics("layer", torch.empty(0), Statistics(variance, variance))

    found, known = {}, known[0, 0] if common else known
    place = None if common else 0
    for fused in (False, True):
        monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor, fused=fused: fused)
        with torch.no_grad():
            everybody = vmap(vmap(one, (1, place, 0)), (1, place, 0))(shown, known, variance)
            found[fused] = everybody, one(shown[:, 1, 2], known if common else known[1, 2], variance[1, 2])
    torch.testing.assert_close(found[True], found[False])
    assert (found[True][0].variance == own_statistics.LEAST_VARIANCE * variance.unsqueeze(-2)).any()


def test_what_it_cannot_do_is_done_step_by_step(monkeypatch):
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: True)
    refused = {
        "several conditions of layers that recognise none": (False, 2, torch.float32),
        "doubles": (True, 2, torch.float64),
    }
    for recognises, conditions, dtype in refused.values():
        group = group_of(("usual",), recognises)
        group = group._replace(moments=ClassMoments(*(values.to(dtype) for values in group.moments)))
        shown, prior, past = given_of(group, conditions, ())
        with torch.no_grad():
            found = corrections(group, 2.0)(shown.to(dtype), prior.to(dtype), Residual(*(v.to(dtype) for v in past)))
        assert found[3][0].dtype is dtype
