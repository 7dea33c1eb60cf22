"""Normalisation by the batch's own statistics, after what a change of class mix explains is taken out.

Under corrupted inputs a batch's own statistics are right and the deployed ones wrong; under label shift it is the other
way round, because other classes have other means. Class-wise moments of the reference set tell the two apart
(`class_moments.py`): only the part of a layer's change that neither the class prior nor chance explains moves its
statistics. Corruptions stay while batches come and go, and they come back, so what earlier batches left counts as far
as new ones agree with it (`conditions.py`). A model without BatchNorm has its features corrected in the same way
before the head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.normalisation import Statistics
from fedade.core.split import Parameters
from fedade.methods.fed_ade_plus.class_moments import ClassMoments, believed, unexplained
from fedade.methods.fed_ade_plus.conditions import (
    ConditionEvidence,
    Recognised,
    Residual,
    evidence,
    joined,
    of_condition,
    of_only,
    place_to_remember,
    recognise,
    remembered,
)
from fedade.methods.fed_ade_plus.reference_moments import (
    FEATURES,
    LayerMoments,
    recognising_layers,
    reference_moments,
    sample_moments,
)

LEAST_VARIANCE = 0.2
"""Share of the deployed variance that is left at least, however narrow a batch seems."""


class LayerResiduals(NamedTuple):
    """What earlier batches left unexplained, of the same two moments."""

    first: Residual
    second: Residual


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
    residuals: dict[str, LayerResiduals]
    """To remember."""


@dataclass(frozen=True)
class PriorCorrected:
    """Statistics of the batch, without what the prior explains, in the given layers; deployed ones in the others."""

    moments: Mapping[str, LayerMoments]
    prior: Tensor
    layers: frozenset[str]
    recognising: frozenset[str]
    """Layers that say what condition the batch came in."""
    doubt: float
    past: Mapping[str, LayerResiduals]
    found: dict[str, Statistics] = field(default_factory=dict)
    trusts: list[Tensor] = field(default_factory=list)
    evidence: list[ConditionEvidence] = field(default_factory=list)
    """What the recognising layers say so far: in others a wrong prior looks like another condition."""
    residuals: dict[str, LayerResiduals] = field(default_factory=dict)
    """Residuals of the condition that this batch came in."""

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        """mean + δ₁ and the variance that follows from the second moment + δ₂."""
        if layer not in self.layers:
            return deployed
        prior, past, number = self.prior.to(deployed.mean.dtype), self.past[layer], len(inputs)
        batch = [
            unexplained(values.mean(0), prior, moments)
            for values, moments in zip(sample_moments(inputs), self.moments[layer], strict=True)
        ]
        if layer in self.recognising:
            self.evidence.extend(
                evidence(one.size, number, one.spread, known) for one, known in zip(batch, past, strict=True)
            )
        found = recognise(self.evidence) if layer in self.recognising else None
        together = LayerResiduals(*(
            joined(_earlier(known, found), one.size, number, one.spread, self.doubt)
            for one, known in zip(batch, past, strict=True)
        ))  # fmt: skip
        first, second = (believed(*both, self.doubt) for both in zip(together, batch, strict=True))
        self.residuals[layer] = together
        mean = deployed.mean + first.size
        variance = deployed.variance + deployed.mean.square() + second.size - mean.square()
        self.found[layer] = Statistics(mean, torch.maximum(variance, LEAST_VARIANCE * deployed.variance))
        self.trusts.extend((first.trust, second.trust))
        return self.found[layer]

    def remembered(self) -> dict[str, LayerResiduals]:
        """What was known before and what this batch adds; layers that were not corrected learn nothing."""
        here = self._place() if self.evidence else None
        added = {
            layer: LayerResiduals(*(
                remembered(old, new, here if layer in self.recognising else None)
                for old, new in zip(self.past[layer], together, strict=True)
            ))
            for layer, together in self.residuals.items()
        }  # fmt: skip
        return {**self.past, **added}

    def _place(self) -> Tensor:
        samples = [one.samples for layer, both in self.past.items() if layer in self.recognising for one in both]
        return place_to_remember(recognise(self.evidence), torch.stack(samples).mean(0))


def _earlier(known: Residual, found: Recognised | None) -> Residual:
    """What counts beside the batch: of its condition, or of the last batches in layers that tell classes apart."""
    return of_only(known) if found is None else of_condition(known, found)


def corrected_pass(
    deployment: Deployment,
    model: Parameters,
    inputs: Tensor,
    prior: Tensor,
    layers: frozenset[str],
    doubt: float,
    past: Mapping[str, LayerResiduals] | None = None,
    passed: Tensor | None = None,
) -> Corrected:
    """A pass in which the given layers are corrected for this prior, by this batch and what is known from past ones.

    `passed` is what the body makes of the inputs, where that is known because none of its layers is corrected.
    """
    network, moments = deployment.network, reference_moments(deployment)
    normalisation = PriorCorrected(
        moments, prior, layers, recognising_layers(deployment), doubt, past or no_residuals(deployment)
    )
    passed = network.represent(model, inputs, normalisation) if passed is None else passed
    features = passed
    if FEATURES in moments:
        deployed = _feature_statistics(moments[FEATURES])
        found = normalisation.statistics(FEATURES, network.summarise(features), deployed)
        features = _moved(features, found, deployed)
    none = torch.zeros_like(deployment.accuracy)
    return Corrected(
        network.classify(model, features),
        network.summarise(features),
        passed,
        _named(normalisation.found),
        torch.stack(normalisation.trusts).mean() if normalisation.trusts else none,
        normalisation.remembered(),
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


def no_residuals(deployment: Deployment, conditions: int = 1) -> dict[str, LayerResiduals]:
    """Before the first batch nothing is known.

    Only layers that tell no classes apart have room for several conditions. In the others a wrong prior leaves
    residuals that agree with it, which would be found again and again.
    """
    moments = reference_moments(deployment)
    recognising = recognising_layers(deployment)
    return {
        layer: LayerResiduals(*(_nothing(one, conditions if layer in recognising else 1) for one in both))
        for layer, both in moments.items()
    }


def _nothing(moments: ClassMoments, conditions: int) -> Residual:
    return Residual(
        torch.zeros_like(moments.within).expand(conditions, -1).clone(), moments.within.new_zeros(conditions)
    )


def at_most(residuals: Mapping[str, LayerResiduals], samples: float) -> dict[str, LayerResiduals]:
    """The same residuals, which count for no more samples than this."""
    return {
        layer: LayerResiduals(*(one._replace(samples=one.samples.clamp(max=samples)) for one in both))
        for layer, both in residuals.items()
    }


def _feature_statistics(moments: LayerMoments) -> Statistics:
    """Mean and variance of the reference set's features, every class counted alike."""
    mean, square = (one.means.mean(0) for one in moments)
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
