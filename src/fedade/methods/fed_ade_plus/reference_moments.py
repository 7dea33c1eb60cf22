"""What the reference set shows in every normalisation layer, class by class, and which layers tell classes apart.

Channels of several layers lie side by side, so that a few operations do for all of them. Axes: 2 moments (means, then
mean squares), N samples, K classes, C channels.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import Watching
from fedade.kernels import channel_moments
from fedade.methods.fed_ade_plus.class_moments import ClassMoments, class_moments, greatest_share

FEATURES = "features"
"""The layer that stands for the features before the head, where a model has no BatchNorm."""

PLAIN_SHARE = 0.25
"""Layers whose per-sample means the class surely explains by less than this can be corrected before the prior is
known."""


class LayerGroup(NamedTuple):
    """Layers with their channels side by side."""

    channels: dict[str, int]
    """How many each layer has."""
    moments: ClassMoments
    """`[2, K, C]` and `[2, C]`."""
    layer_of_channel: Tensor
    """`[C]`: places of the layers."""
    recognises: bool
    """Whether its layers say what condition a batch came in: plain ones do. The features before the head do not: what
    it reads changes with the classes, however little of a noisy feature they explain, and each class mix would be a
    condition of its own."""

    def by_layer(self, values: Tensor) -> dict[str, Tensor]:
        """Values `[..., C]` of each layer."""
        return dict(zip(self.channels, torch.split(values, list(self.channels.values()), -1), strict=True))


def reference_moments(deployment: Deployment) -> dict[str, ClassMoments]:
    """Moments of every BatchNorm layer on the reference set under the deployed model, or else of the features."""
    return deployment.constant(_moments)


def plain_layers(deployment: Deployment) -> frozenset[str]:
    """Layers that tell classes apart so little that a wrong prior does no harm there."""
    return deployment.constant(_plain_layers)


def layer_groups(deployment: Deployment) -> tuple[LayerGroup, ...]:
    """Layers that recognise conditions, and the others; fewer groups where there are none of a kind."""
    return deployment.constant(_layer_groups)


def sample_moments(inputs: Tensor) -> Tensor:
    """Mean and mean square of every sample's channels, `[2, n, C]`, in float32."""
    if inputs.ndim == 4:
        return channel_moments(inputs)
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    if exact.ndim > 2:
        return torch.stack((exact.flatten(2).mean(-1), exact.flatten(2).square().mean(-1)))
    return torch.stack((exact, exact.square()))


def _moments(deployment: Deployment) -> dict[str, ClassMoments]:
    network, reference = deployment.network, deployment.reference
    parts, at_once = [], max(1, 2**22 // max(1, reference.inputs[0].numel()))  # a large set of large images must fit
    for inputs in torch.split(reference.inputs, at_once):
        watching = Watching(sample_moments)
        features = network.summarise(network.represent(deployment.parameters, inputs, watching))
        # Layers that see other rows than samples, such as tokens, cannot be told their classes.
        seen = {layer: moments for layer, moments in watching.seen.items() if moments.shape[1] == len(inputs)}
        parts.append(seen or {FEATURES: sample_moments(features)})
    return {
        layer: class_moments(torch.cat([part[layer] for part in parts], 1), reference.labels, deployment.num_classes)
        for layer in parts[0]
    }


def _plain_layers(deployment: Deployment) -> frozenset[str]:
    moments = reference_moments(deployment)
    shares = torch.stack([greatest_share(both)[0] for both in moments.values()]).tolist()
    return frozenset(layer for layer, share in zip(moments, shares, strict=True) if share < PLAIN_SHARE)


def _layer_groups(deployment: Deployment) -> tuple[LayerGroup, ...]:
    moments, recognising = reference_moments(deployment), plain_layers(deployment) - {FEATURES}
    kinds = (
        {layer: both for layer, both in moments.items() if (layer in recognising) == kind} for kind in (True, False)
    )
    return tuple(_grouped(some, recognises) for some, recognises in zip(kinds, (True, False), strict=True) if some)


def _grouped(moments: dict[str, ClassMoments], recognises: bool) -> LayerGroup:
    channels = {layer: both.within.shape[-1] for layer, both in moments.items()}
    means, within = (torch.cat([both[part] for both in moments.values()], -1) for part in (0, 1))
    scarcity = next(iter(moments.values())).scarcity
    places = torch.arange(len(channels)).repeat_interleave(torch.tensor(list(channels.values())))
    return LayerGroup(channels, ClassMoments(means, within, scarcity), places.to(within.device), recognises)
