"""Statistics of one layer for a batch, and what they follow from: what is expected, remembered and seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedade import kernels
from fedade.core.normalisation import BySampleMoments, SampleMoments, Statistics
from fedade.kernels import CorrectedLayer, Correcting, CorrectionRule
from fedade.methods.fed_ade_plus import class_moments, conditions, own_statistics
from fedade.methods.fed_ade_plus.class_moments import Expected, LayerGroup
from fedade.methods.fed_ade_plus.conditions import Evidence, Residual
from fedade.methods.fed_ade_plus.own_statistics import OwnShare

LEAST_VARIANCE = 0.2
"""Share of the deployed variance that is left at least, however narrow a batch seems."""
Residuals = tuple[Residual, ...]
"""What earlier batches left unexplained, by group of layers (`layer_groups`)."""


class SeenLayer(NamedTuple):
    """What a layer was shown."""

    moments: Tensor
    """`[2, C]`: mean and mean square of the batch."""
    deployed: Statistics


class LayerKnowledge(NamedTuple):
    """What is known of a layer before a batch is seen; views of what was computed for its whole group."""

    expected: Expected
    past: Residual
    precision: Tensor
    """`[M, 2, C]`: one over the variance by which the batch differs from each condition by chance."""
    widths: Tensor
    """`[M]`: logarithms of that variance, summed over moments, less that of a sample."""
    counted: Tensor
    """`[2, 1]`: how many independent samples the batch is worth."""
    recognises: bool


def known_before(
    group: LayerGroup, past: Residual, prior: Tensor, samples: int, evenness: float | None = None
) -> dict[str, LayerKnowledge]:
    """What each layer of a group should show under this prior, in a batch of so many samples; `evenness` where the
    prior is a forecast, which may be of other classes than come: the purer it is, and the more classes differ in a
    layer, the fewer independent samples the batch is worth there, as those of a cluster are (Kish, 1965)."""
    expected = class_moments.expected_under(prior, group.moments, _samples_of_prior(group, samples))
    counted = torch.full_like(past.samples[0], samples)
    if evenness is not None:
        apart = group.by_layer(class_moments.distance_of_classes(expected, group.moments))
        of_layers = torch.stack([values.mean(-1) for values in apart], -1)
        counted = 1 / (1 / counted + class_moments.concentration(prior, evenness) * of_layers)
    spans = conditions.width(counted, past)
    precision = 1 / conditions.positive(expected.spread * spans[..., group.layer_of_channel])
    by_channel = (group.by_layer(values) for values in (*expected, past.size, precision))
    by_layer = torch.split(past.samples, 1, -1), spans.log().sum(-2).unbind(-1), torch.split(counted, 1, -1)
    return {
        layer: LayerKnowledge(Expected(*values[:3]), Residual(size, known), precise, wide, worth, group.recognises)
        for layer, *values, size, precise, known, wide, worth in zip(
            group.channels, *by_channel, *by_layer, strict=True
        )
    }


def _samples_of_prior(group: LayerGroup, samples: int) -> float:
    # Classes move features by more than anything else: counted there, this error cost more than it saved. Elsewhere the
    # prior of a small batch is known from those before, too.
    return math.inf if class_moments.FEATURES in group.channels else max(samples, own_statistics.JUDGED_BY)


def corrected_layer(
    known: LayerKnowledge, moments: Tensor, deployed: Statistics, heard: Evidence | None, doubt: float
) -> CorrectedLayer:
    """mean + δ₁ and the variance that follows from the second moment + δ₂: as deployed where both are 0. `heard` is
    what recognising layers said before."""
    shown = moments.mean(-2) if moments.shape[-2] > 1 else moments.squeeze(-2)
    size = shown - known.expected.mean
    squares = conditions.squared_differences(size, known.past.size, known.precision)
    earlier, channels = (known.past, squares), len(deployed.mean)
    said = squares[:, 0, 0], known.widths
    if known.recognises:
        own = Evidence(squares.sum((-2, -1)), channels * known.widths, 2 * channels)
        heard = own if heard is None else conditions.together(heard, own)
        earlier, said = conditions.of_condition(*earlier, conditions.recognise(heard)), heard[:2]
    elif len(squares) > 1:
        earlier = conditions.own_or_common(*earlier, known.widths, heard)
    residual = conditions.joined(*earlier, size, known.counted, doubt)
    shift = class_moments.believed(residual, known.expected, doubt)
    first, second = shift.size[0]
    variance = torch.addcmul(deployed.variance + second, first, first.add(deployed.mean, alpha=2), value=-1)
    variance = torch.maximum(variance, LEAST_VARIANCE * deployed.variance)
    return CorrectedLayer(shown, deployed.mean + first, variance, *residual, shift.trust, said)


@dataclass(frozen=True)
class PriorCorrected(BySampleMoments):
    """Statistics of the batch, without what the prior explains, in the given layers; deployed ones in the others."""

    groups: Sequence[tuple[LayerGroup, Residual]]
    """Layers, and what earlier batches left unexplained in them."""
    prior: Tensor
    layers: frozenset[str]
    samples: int
    doubt: float
    spreads: Mapping[str, Tensor] = field(default_factory=dict)
    """How much samples differ anyway, by layer in which each has statistics of its own."""
    apart: dict[str, Tensor] = field(default_factory=dict)
    """How many times as much they did in these layers: in earlier batches, then with this one."""
    evenness: float | None = None
    """Σ_k μ0_k² of the source prior, where the prior is a forecast: made before the batch was seen."""
    seen: dict[str, SeenLayer] = field(default_factory=dict)
    found: dict[str, Statistics] = field(default_factory=dict)
    trusts: list[Tensor] = field(default_factory=list)
    own: dict[str, OwnShare] = field(default_factory=dict)
    differences: list[Tensor | None] = field(default_factory=list)
    """How much more than usual samples differ, up to each layer in which they have statistics of their own."""
    residuals: dict[str, Residual] = field(default_factory=dict)
    """Residuals of the condition that this batch came in."""
    evidence: list[Evidence] = field(default_factory=list)
    """What the recognising layers said so far, summed: in others a wrong prior looks like another condition."""

    @cached_property
    def known(self) -> dict[str, LayerKnowledge]:
        """Of all layers; where one kernel corrects a layer, nobody asks."""
        return {
            layer: knowledge
            for group, past in self.groups
            for layer, knowledge in known_before(
                group, past, self.prior.to(past.size.dtype), self.samples, self.evenness
            ).items()
        }

    def looks_at(self, layer: str) -> bool:
        return any(layer in group.channels for group, _ in self.groups)

    def statistics(self, layer: str, inputs: Tensor | SampleMoments, deployed: Statistics) -> Statistics:
        if not self.looks_at(layer):
            return deployed
        moments = own_statistics.sample_moments(inputs)
        if layer in self.layers:
            return self.corrected(layer, moments, deployed)
        self.seen[layer] = SeenLayer(moments.mean(-2), deployed)
        return deployed

    def corrected(self, layer: str, moments: Tensor, deployed: Statistics) -> Statistics:
        """As `corrected_layer` of the moments of all samples, `[2, n, C]`; what it finds is kept."""
        group, past = next(pair for pair in self.groups if layer in pair[0].channels)
        heard = self.evidence[-1] if self.evidence else None
        channels = 2 * len(deployed.mean) + (heard.channels if heard is not None else 0)
        squares, widths = heard[:2] if heard is not None and group.recognises else (None, None)
        new = kernels.corrected_layer(
            moments,
            lambda: corrected_layer(self.known[layer], moments, deployed, heard, self.doubt),
            lambda: (
                Correcting(moments, *deployed, self.prior.to(past.size.dtype), *past, squares, widths, *group.moments),
                self._rule(group, layer, channels),
            ),
        )
        self.seen[layer] = SeenLayer(new.moments, deployed)
        self.found[layer], self.residuals[layer] = Statistics(new.mean, new.variance), Residual(new.size, new.samples)
        self.trusts.append(new.trust)
        if group.recognises:
            self.evidence.append(Evidence(*new.heard, channels))
        if layer not in self.spreads:
            return self.found[layer]
        earlier = self.differences[-1] if self.differences else None
        samples = own_statistics.of_samples(self.found[layer], moments, self.spreads[layer], self.apart[layer], earlier)
        self.own[layer], self.apart[layer] = samples.share, samples.apart
        self.differences.append(samples.difference)
        return samples.statistics

    def _rule(self, group: LayerGroup, layer: str, channels_heard: int) -> CorrectionRule:
        number, first_channel = group.place(layer)
        return CorrectionRule(
            first_channel=first_channel,
            layer=number,
            channels_heard=channels_heard,
            samples=self.samples,
            evenness=self.evenness,
            samples_of_prior=_samples_of_prior(group, self.samples),
            doubt=self.doubt,
            new=conditions.NEW,
            fewest_samples=conditions.FEWEST_SAMPLES,
            least_variance=LEAST_VARIANCE,
            recognises=group.recognises,
        )

    def remembered(self, groups: Sequence[LayerGroup], past: Residuals) -> Residuals:
        """What was known before and what this batch adds; groups that were not corrected learn nothing."""
        return tuple(
            self._added(group, known) if group.channels.keys() <= self.residuals.keys() else known
            for group, known in zip(groups, past, strict=False)
        )

    def _added(self, group: LayerGroup, past: Residual) -> Residual:
        by_layer = zip(*(self.residuals[layer] for layer in group.channels), strict=True)
        new = Residual(*(torch.cat(parts, -1) for parts in by_layer))
        if not group.recognises:
            return new
        found, samples = conditions.recognise(self.evidence[-1]), past.samples.mean((-2, -1))
        return conditions.remembered(past, new, conditions.place_to_remember(found, samples))
