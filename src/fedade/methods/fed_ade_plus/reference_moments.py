"""What the reference set shows in every normalisation layer, class by class, and which layers tell classes apart."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Statistics
from fedade.methods.fed_ade_plus.class_moments import ClassMoments, class_moments, explained_share

FEATURES = "features"
"""The layer that stands for the features before the head, where a model has no BatchNorm."""

PLAIN_SHARE = 0.25
"""Layers whose per-sample means the class explains by less than this can be corrected before the prior is known."""


class LayerMoments(NamedTuple):
    """Class moments of the mean of a layer's input over each sample, and of the mean of its square."""

    first: ClassMoments
    second: ClassMoments


def reference_moments(deployment: Deployment) -> dict[str, LayerMoments]:
    """Moments of every BatchNorm layer on the reference set under the deployed model, or else of the features."""
    return deployment.constant(_moments)


def plain_layers(deployment: Deployment) -> frozenset[str]:
    """Layers that tell classes apart so little that a wrong prior does no harm there."""
    return deployment.constant(_plain_layers)


def recognising_layers(deployment: Deployment) -> frozenset[str]:
    """Plain layers, but not the features before the head: what it reads changes with the classes, however little of a
    noisy feature they explain, and each class mix would be a condition of its own."""
    return plain_layers(deployment) - {FEATURES}


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


def _moments(deployment: Deployment) -> dict[str, LayerMoments]:
    network, reference = deployment.network, deployment.reference
    parts = []
    for inputs in torch.split(reference.inputs, _at_once(reference.inputs)):
        watching = _Watching()
        features = network.summarise(network.represent(deployment.parameters, inputs, watching))
        # Layers that see other rows than samples, such as tokens, cannot be told their classes.
        seen = {layer: moments for layer, moments in watching.seen.items() if len(moments[0]) == len(inputs)}
        parts.append(seen or {FEATURES: sample_moments(features)})
    return {
        layer: LayerMoments(*(
            class_moments(torch.cat(moments), reference.labels, deployment.num_classes)
            for moments in zip(*(part[layer] for part in parts), strict=True)
        ))
        for layer in parts[0]
    }  # fmt: skip


def _at_once(inputs: Tensor) -> int:
    """How many inputs pass at once, so that a large reference set of large images fits."""
    return max(1, 2**22 // max(1, inputs[0].numel()))


def _plain_layers(deployment: Deployment) -> frozenset[str]:
    moments = reference_moments(deployment)
    shares = torch.stack([explained_share(both.first) for both in moments.values()]).tolist()
    return frozenset(layer for layer, share in zip(moments, shares, strict=True) if share < PLAIN_SHARE)
