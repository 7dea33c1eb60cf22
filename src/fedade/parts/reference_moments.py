"""What the reference set shows in every normalisation layer, class by class, and which layers tell classes apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.network import Network
from fedade.core.normalisation import Statistics
from fedade.maths.class_moments import ClassMoments, class_moments, explained_share
from fedade.maths.remembering import of_constants
from fedade.parts.statistics import statistics_names

FEATURES = "features"
"""The layer that stands for the features before the head, where a model has no BatchNorm."""

PLAIN_SHARE = 0.25
"""Layers whose per-sample means the class explains by less than this can be corrected before the prior is known."""


class LayerMoments(NamedTuple):
    """Of the mean of a layer's input over each sample, and of the mean of its square."""

    first: ClassMoments
    second: ClassMoments


def reference_moments(deployment: Deployment) -> dict[str, LayerMoments]:
    """Moments of every BatchNorm layer on the reference set under the deployed model, or else of the features."""
    parameters, (inputs, labels) = deployment.parameters, deployment.reference
    return _moments(
        deployment.network,
        tuple(parameters),
        tuple(parameters.values()),
        inputs,
        labels,
        deployment.num_classes,
        bool(statistics_names(deployment)),
    )


def plain_layers(moments: Mapping[str, LayerMoments]) -> frozenset[str]:
    """Layers that tell classes apart so little that a wrong prior does no harm there."""
    return _plain(tuple(moments), tuple(one.first for one in moments.values()))


def recognising_layers(moments: Mapping[str, LayerMoments]) -> frozenset[str]:
    """Plain layers, but not the features before the head: what it reads changes with the classes, however little of a
    noisy feature they explain, and each class mix would be a condition of its own."""
    return plain_layers(moments) - {FEATURES}


def sample_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean square of every sample's channels, `[n, C]`, in float32."""
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    axes = tuple(range(2, exact.ndim))
    return (exact.mean(axes), exact.square().mean(axes)) if axes else (exact, exact.square())


@dataclass(frozen=True)
class _Watching:
    """Keeps the moments of every sample and changes nothing."""

    seen: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        self.seen[layer] = sample_moments(inputs)
        return deployed


@of_constants
def _moments(
    network: Network,
    names: tuple[str, ...],
    values: tuple[Tensor, ...],
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    has_statistics: bool,
) -> dict[str, LayerMoments]:
    watching = _Watching()
    with torch.no_grad():
        features = network.represent(dict(zip(names, values, strict=True)), inputs, watching)
        seen = watching.seen if has_statistics else {FEATURES: sample_moments(network.summarise(features))}
        return {
            layer: LayerMoments(*(class_moments(moment, labels, num_classes) for moment in moments))
            for layer, moments in seen.items()
        }


@of_constants
def _plain(layers: tuple[str, ...], moments: tuple[ClassMoments, ...]) -> frozenset[str]:
    shares = torch.stack([explained_share(one) for one in moments]).tolist()
    return frozenset(layer for layer, share in zip(layers, shares, strict=True) if share < PLAIN_SHARE)
