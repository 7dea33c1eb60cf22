"""Normalisation by the batch's own statistics, after what a change of class mix explains is taken out.

Under corrupted inputs a batch's own statistics are right and the deployed ones wrong; under label shift it is the other
way round, because other classes have other means. Class-wise moments of the reference set tell the two apart
(`class_moments.py`): only the part of a layer's change that neither the class prior nor chance explains moves its
statistics. Corruptions stay while batches come and go, and they come back, so what earlier batches left counts as far
as new ones agree with it (`conditions.py`). A model without BatchNorm has its features corrected in the same way
before the head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.normalisation import Statistics
from fedade.core.split import Parameters
from fedade.methods.fed_ade_plus.class_moments import ClassMoments, Expected, believed, expected_under
from fedade.methods.fed_ade_plus.conditions import (
    Evidence,
    Residual,
    joined,
    of_condition,
    place_to_remember,
    positive,
    recognise,
    remembered,
    squared_differences,
    together,
    width,
)
from fedade.methods.fed_ade_plus.reference_moments import (
    FEATURES,
    LayerGroup,
    layer_groups,
    reference_moments,
    sample_moments,
)

LEAST_VARIANCE = 0.2
"""Share of the deployed variance that is left at least, however narrow a batch seems."""

Residuals = tuple[Residual, ...]
"""What earlier batches left unexplained, by group of layers (`layer_groups`)."""


class Corrected(NamedTuple):
    """A pass and the statistics that it found."""

    logits: Tensor
    features: Tensor
    """One vector per sample."""
    passed: Tensor
    """What the body gave: the same as it gives with these statistics in place of the deployed ones."""
    statistics: dict[str, Tensor]
    """Means and variances by the names of the tensors that they replace."""
    trust: Tensor
    """Mean share of the unexplained change that was believed, over the corrected layers."""
    residuals: Residuals
    """To remember."""


class LayerKnowledge(NamedTuple):
    """What is known of a layer before a batch is seen; views of what was computed for its whole group."""

    expected: Expected
    past: Residual
    precision: Tensor
    """`[M, 2, C]`: one over the variance by which the batch differs from each condition by chance."""
    widths: Tensor
    """`[M]`: logarithms of that variance, summed over moments, less that of a sample."""
    recognises: bool


def known_before(group: LayerGroup, past: Residual, prior: Tensor, samples: int) -> dict[str, LayerKnowledge]:
    """What each layer of a group should show under this prior, in a batch of so many samples."""
    expected, spans = expected_under(prior, group.moments), width(samples, past)
    precision = 1 / positive(expected.spread * spans[..., group.layer_of_channel])
    expectations = zip(*(group.by_layer(values).values() for values in expected), strict=True)
    return {
        layer: LayerKnowledge(Expected(*expectation), Residual(size, counted), precise, wide, group.recognises)
        for layer, expectation, size, precise, counted, wide in zip(
            group.channels,
            expectations,
            group.by_layer(past.size).values(),
            group.by_layer(precision).values(),
            torch.split(past.samples, 1, -1),
            spans.log().sum(-2).unbind(-1),
            strict=True,
        )
    }


@dataclass(frozen=True)
class PriorCorrected:
    """Statistics of the batch, without what the prior explains, in the given layers; deployed ones in the others."""

    layers: Mapping[str, LayerKnowledge]
    samples: int
    doubt: float
    found: dict[str, Statistics] = field(default_factory=dict)
    trusts: list[Tensor] = field(default_factory=list)
    residuals: dict[str, Residual] = field(default_factory=dict)
    """Residuals of the condition that this batch came in."""
    evidence: list[Evidence] = field(default_factory=list)
    """What the recognising layers said so far, summed: in others a wrong prior looks like another condition."""

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        """mean + δ₁ and the variance that follows from the second moment + δ₂: as deployed where both are 0."""
        if layer not in self.layers:
            return deployed
        known = self.layers[layer]
        size = sample_moments(inputs).mean(-2) - known.expected.mean
        squares = squared_differences(size, known.past.size, known.precision)
        earlier = known.past, squares
        if known.recognises:
            earlier = of_condition(*earlier, recognise(self._heard(known, squares)))
        residual = joined(*earlier, size, self.samples, self.doubt)
        shift = believed(residual, known.expected, self.doubt)
        first, second = shift.size[0]
        variance = torch.addcmul(deployed.variance + second, first, first.add(deployed.mean, alpha=2), value=-1)
        found = Statistics(deployed.mean + first, torch.maximum(variance, LEAST_VARIANCE * deployed.variance))
        self.found[layer], self.residuals[layer] = found, residual
        self.trusts.append(shift.trust)
        return found

    def remembered(self, groups: Sequence[LayerGroup], past: Residuals) -> Residuals:
        """What was known before and what this batch adds; groups that were not corrected learn nothing."""
        return tuple(
            self._added(group, known) if group.channels.keys() <= self.residuals.keys() else known
            for group, known in zip(groups, past, strict=False)
        )

    def _added(self, group: LayerGroup, past: Residual) -> Residual:
        new = Residual(
            *(torch.cat(parts, -1) for parts in zip(*(self.residuals[layer] for layer in group.channels), strict=True))
        )
        if not group.recognises:
            return new
        return remembered(past, new, place_to_remember(recognise(self.evidence[-1]), past.samples.mean((-2, -1))))

    def _heard(self, known: LayerKnowledge, squares: Tensor) -> Evidence:
        """What recognising layers say so far, this one included."""
        channels = known.past.size.shape[-1]
        said = Evidence(squares.sum((-2, -1)), channels * known.widths, 2 * channels)
        self.evidence.append(together(self.evidence[-1], said) if self.evidence else said)
        return self.evidence[-1]


def corrected_pass(
    deployment: Deployment,
    model: Parameters,
    inputs: Tensor,
    prior: Tensor,
    layers: frozenset[str],
    doubt: float,
    past: Residuals,
    passed: Tensor | None = None,
) -> Corrected:
    """A pass in which the given layers are corrected for this prior, by this batch and what is known from past ones.

    `passed` is what the body makes of the inputs, where that is known because none of its layers is corrected.
    """
    network, groups, samples = deployment.network, layer_groups(deployment), len(inputs)
    known = {
        layer: knowledge
        for group, residual in zip(groups, past, strict=False)
        for layer, knowledge in known_before(group, residual, prior.to(residual.size.dtype), samples).items()
        if layer in layers
    }
    normalisation = PriorCorrected(known, samples, doubt)
    passed = network.represent(model, inputs, normalisation) if passed is None else passed
    features = passed
    if FEATURES in reference_moments(deployment):
        deployed = _feature_statistics(reference_moments(deployment)[FEATURES])
        found = normalisation.statistics(FEATURES, network.summarise(features), deployed)
        features = _moved(features, found, deployed)
    none = torch.zeros_like(deployment.accuracy)
    return Corrected(
        network.classify(model, features),
        network.summarise(features),
        passed,
        _named(normalisation.found),
        torch.cat(normalisation.trusts).mean() if normalisation.trusts else none,
        normalisation.remembered(groups, past),
    )


def settled_pass(ctx: ClientContext, model: Parameters, statistics: Parameters, keeps_body: bool) -> Tensor:
    """Logits with statistics that were found before; `keeps_body` if the model's body is the deployed one."""
    deployment, network = ctx.deployment, ctx.deployment.network
    has_statistics = any(name in deployment.parameters for name in statistics)
    if keeps_body and not has_statistics:
        features = ctx.deployed_features()
    else:
        features = ctx.own_features({**model, **statistics})
    name = f"{FEATURES}.running_mean"
    if name in statistics:
        deployed = _feature_statistics(reference_moments(deployment)[FEATURES])
        features = _moved(features, Statistics(statistics[name], statistics[f"{FEATURES}.running_var"]), deployed)
    return network.classify(model, features)


def deployed_statistics(deployment: Deployment) -> dict[str, Tensor]:
    """What statistics are before the first batch, by the same names."""
    moments = reference_moments(deployment)
    if FEATURES in moments:
        return _named({FEATURES: _feature_statistics(moments[FEATURES])})
    return {
        name: deployment.parameters[name]
        for layer in moments
        for name in (f"{layer}.running_mean", f"{layer}.running_var")
    }


def no_residuals(deployment: Deployment, conditions: int = 1) -> Residuals:
    """Before the first batch nothing is known.

    Only layers that tell no classes apart have room for several conditions. In the others a wrong prior leaves
    residuals that agree with it, which would be found again and again.
    """
    return tuple(_nothing(group, conditions if group.recognises else 1) for group in layer_groups(deployment))


def _nothing(group: LayerGroup, conditions: int) -> Residual:
    within = group.moments.within
    return Residual(
        within.new_zeros(conditions, *within.shape), within.new_zeros(conditions, len(within), len(group.channels))
    )


def at_most(residuals: Residuals, samples: float) -> Residuals:
    """The same residuals, which count for no more samples than this."""
    return tuple(one._replace(samples=one.samples.clamp(max=samples)) for one in residuals)


def _feature_statistics(moments: ClassMoments) -> Statistics:
    """Mean and variance of the reference set's features, every class counted alike."""
    mean, square = moments.means.mean(-2)
    return Statistics(mean, (square - mean.square()).clamp(min=torch.finfo(mean.dtype).eps))


def _moved(features: Tensor, found: Statistics, deployed: Statistics) -> Tensor:
    """Features with the deployed mean and variance in place of those that were found; padding of texts stays zero."""
    scale = (deployed.variance / found.variance).sqrt()
    moved = (features - found.mean) * scale + deployed.mean
    return moved if features.ndim < 3 else torch.where((features != 0).any(-1, keepdim=True), moved, features)


def _named(found: Mapping[str, Statistics]) -> dict[str, Tensor]:
    return {
        f"{layer}.{name}": value
        for layer, (mean, variance) in found.items()
        for name, value in (("running_mean", mean), ("running_var", variance))
    }
