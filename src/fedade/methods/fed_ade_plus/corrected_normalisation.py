"""Normalisation by the batch's own statistics, after what a change of class mix explains is taken out.

Under corrupted inputs a batch's own statistics are right and the deployed ones wrong; under label shift it is the other
way round, because other classes have other means. Class-wise moments of the reference set tell the two apart
(`class_moments.py`): only the part of a layer's change that neither the class prior nor chance explains moves its
statistics. What earlier batches left counts as far as new ones agree with it (`conditions.py`). A model without
BatchNorm has its features corrected in the same way before the head.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.core.method import ClientContext, Deployment
from fedade.core.normalisation import FROZEN, Normalisation, Statistics
from fedade.core.split import Parameters
from fedade.methods.fed_ade_plus import own_statistics
from fedade.methods.fed_ade_plus.class_moments import (
    FEATURES,
    expected_under,
    layer_groups,
    reference_moments,
    sample_spreads,
    source_evenness,
)
from fedade.methods.fed_ade_plus.conditions import Residual, squared_ratio
from fedade.methods.fed_ade_plus.layer_statistics import PriorCorrected, Residuals, SeenLayer
from fedade.methods.fed_ade_plus.own_statistics import OwnShare, OwnStatistics
from fedade.parts.norm_layers import named_statistics

FEATURE_BIAS = 8.0
"""How much more predictions may be biased where only features are corrected: the layers before them still see inputs as
they were never trained on."""
UNCORRECTED_BIAS, CONVINCING = 16.0, 6
"""The same where no layer is corrected before the classes are known, if these explain nothing of what the layers show;
and the power by which it falls with what they explain."""


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
    apart: Tensor | tuple[()]
    """To remember too: how many times as much as usual samples differed, by layer; nothing where nobody asks."""
    seen: Mapping[str, SeenLayer]
    """What every layer was shown, in this order."""


def corrected_pass(
    deployment: Deployment,
    model: Parameters,
    inputs: Tensor,
    prior: Tensor,
    layers: frozenset[str],
    doubt: float,
    past: Residuals,
    passed: Tensor | None = None,
    forecast: bool = False,
    apart: Tensor | tuple[()] = (),
) -> Corrected:
    """A pass in which the given layers are corrected for this prior, by this batch and what is known from past ones.
    `passed` is what the body makes of the inputs, where that is known because none of its layers is corrected. Of a
    prior that is a `forecast` other classes may have come: the batch counts for fewer samples, and nothing is added to
    what is remembered. With `apart`, how many times as much as those of the reference set samples of earlier batches
    differed, those of this one have statistics of their own as far as they do."""
    network = deployment.network
    each_sample = isinstance(apart, Tensor)
    spreads = sample_spreads(deployment) if each_sample else {}
    evenness = source_evenness(deployment) if forecast else None
    normalisation = _prepared(deployment, prior, layers, len(inputs), doubt, past, spreads, apart, evenness)
    passed = network.represent(model, inputs, normalisation) if passed is None else passed
    features = passed
    if FEATURES in reference_moments(deployment):
        deployed = _feature_statistics(deployment)
        found = normalisation.statistics(FEATURES, network.summarise(features), deployed)
        features = _moved(features, found, deployed)
    return Corrected(
        network.classify(model, features),
        network.summarise(features),
        passed,
        {
            **named_statistics(normalisation.found),
            **(own_by_name(deployment, normalisation.own) if each_sample else {}),
        },
        torch.cat(normalisation.trusts).mean() if normalisation.trusts else torch.zeros_like(deployment.accuracy),
        past if forecast else normalisation.remembered(layer_groups(deployment), past),
        torch.stack([*normalisation.apart.values()]) if normalisation.apart else apart,
        normalisation.seen,
    )


def kept_pass(
    first: Corrected, deployment: Deployment, prior: Tensor, layers: frozenset[str], doubt: float, past: Residuals
) -> Corrected:
    """A pass as it was made, and what these layers say of the batch under another prior: where that is next to nothing,
    making the pass again with this prior would change nothing worth its cost."""
    normalisation = _prepared(deployment, prior, layers, len(first.logits), doubt, past)
    for layer, seen in first.seen.items():
        normalisation.corrected(layer, seen.moments.unsqueeze(-2), seen.deployed)
    return first._replace(
        statistics={**deployed_statistics(deployment), **first.statistics} if normalisation.found else {},
        trust=torch.cat(normalisation.trusts).mean() if normalisation.trusts else first.trust,
        residuals=normalisation.remembered(layer_groups(deployment), past),
    )


def _prepared(
    deployment: Deployment,
    prior: Tensor,
    layers: frozenset[str],
    samples: int,
    doubt: float,
    past: Residuals,
    spreads: Mapping[str, Tensor] = MappingProxyType({}),
    apart: Iterable[Tensor] = (),
    evenness: float | None = None,
) -> PriorCorrected:
    groups = tuple(zip(layer_groups(deployment), past, strict=False))
    before = dict(zip(spreads, apart, strict=True))
    return PriorCorrected(groups, prior, layers, samples, doubt, spreads, before, evenness)


def settled(deployment: Deployment, statistics: Parameters) -> Normalisation:
    """How inputs are normalised with statistics that were found before."""
    if own_statistics.NAME not in statistics:
        return FROZEN
    channels = {layer: spread.shape[-1] for layer, spread in sample_spreads(deployment).items()}
    return OwnStatistics(statistics[own_statistics.NAME], channels)


def settled_pass(ctx: ClientContext, model: Parameters, statistics: Parameters, keeps_body: bool) -> Tensor:
    """Logits with statistics that were found before; `keeps_body` if the model's body is the deployed one."""
    deployment, network = ctx.deployment, ctx.deployment.network
    has_statistics = any(name in deployment.parameters for name in statistics)
    deployed_body = keeps_body and not has_statistics
    features = (
        ctx.deployed_features()
        if deployed_body
        else ctx.own_features({**model, **statistics}, settled(deployment, statistics))
    )
    name = f"{FEATURES}.running_mean"
    if name in statistics:
        deployed = _feature_statistics(deployment)
        found = Statistics(statistics[name], statistics[f"{FEATURES}.running_var"])
        features = _moved(features, found, deployed)
    return network.classify(model, features)


def deployed_statistics(deployment: Deployment) -> dict[str, Tensor]:
    """What statistics are before the first batch, by the same names."""
    moments = reference_moments(deployment)
    if FEATURES in moments:
        return named_statistics({FEATURES: _feature_statistics(deployment)})
    names = [f"{layer}.running_{moment}" for layer in moments for moment in ("mean", "var")]
    return {name: deployment.parameters[name] for name in names}


def own_by_name(deployment: Deployment, found: Mapping[str, OwnShare]) -> dict[str, Tensor]:
    """What samples have of their own: nothing in layers where none was found, as before the first batch."""
    known, layers = deployment.parameters, sample_spreads(deployment)
    shares = {
        layer: found[layer]
        if layer in found
        else own_statistics.none_own(Statistics(known[f"{layer}.running_mean"], known[f"{layer}.running_var"]))
        for layer in layers
    }
    return {own_statistics.NAME: own_statistics.joined(shares)} if layers else {}


def no_residuals(deployment: Deployment, conditions: int = 1) -> Residuals:
    """Before the first batch nothing is known. Only layers that tell no classes apart have room for several conditions:
    in the others a wrong prior leaves residuals that agree with it, which would be found again and again."""
    return tuple(
        Residual(within.new_zeros(room, *within.shape), within.new_zeros(room, len(within), len(group.channels)))
        for group in layer_groups(deployment)
        for within, room in ((group.moments.within, conditions if group.recognises else 1),)
    )


def at_most(residuals: Residuals, samples: float) -> Residuals:
    """The same residuals, which count for no more samples than this."""
    return tuple(residual._replace(samples=residual.samples.clamp(max=samples)) for residual in residuals)


def _feature_statistics(deployment: Deployment) -> Statistics:
    """Mean and variance of the reference set's features, every class counted alike."""
    mean, square = reference_moments(deployment)[FEATURES].means.mean(-2)
    return Statistics(mean, (square - mean.square()).clamp(min=torch.finfo(mean.dtype).eps))


def _moved(features: Tensor, found: Statistics, deployed: Statistics) -> Tensor:
    """Features with the deployed mean and variance in place of those that were found; padding of texts stays zero."""
    scale = (deployed.variance / found.variance).sqrt()
    moved = (features - found.mean) * scale + deployed.mean
    return moved if features.ndim < 3 else torch.where((features != 0).any(-1, keepdim=True), moved, features)


def uncorrected_bias(
    deployment: Deployment, seen: Mapping[str, SeenLayer], prior: Float[Tensor, " K"]
) -> Float[Tensor, ""]:
    """How much more predictions may be biased that speak for this prior, by what it leaves of the layers' change."""
    return UNCORRECTED_BIAS * unexplained(deployment, seen, prior) ** CONVINCING


def unexplained(deployment: Deployment, seen: Mapping[str, SeenLayer], prior: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """Share of the squared changes since deployment that other classes leave in the layers, at most 1."""
    shares = []
    for layer, moments in reference_moments(deployment).items():
        priors = (deployment.source_prior, prior)
        source, other = (expected_under(q.to(moments.within.dtype), moments) for q in priors)
        shown = seen[layer].moments
        left, change = (squared_ratio(shown - mean, source.spread).mean() for mean in (other.mean, source.mean))
        shares.append((left / change).clamp(max=1))
    return torch.stack(shares).mean()
