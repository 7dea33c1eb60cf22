"""Last layers and what they see: many over one frozen body, their predictions and their losses.

The head of an image model is its last layer. The head of a text model holds half of the network, and its classifier is
the last layer.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.functional import linear

from fedade.core.method import ClientContext, Deployment
from fedade.core.split import Parameters
from fedade.maths.losses import class_weights, estimated_risk

_WHOLE_HEAD = "head."


class Examination(NamedTuple):
    """Samples by whose weighted loss models are judged and trained."""

    features: Tensor
    labels: Tensor
    weights: Tensor


def last_layer(deployment: Deployment) -> dict[str, Tensor]:
    prefix = _prefix(deployment)
    return {name: value for name, value in deployment.parameters.items() if name.startswith(prefix)}


def seen_by_last_layer(deployment: Deployment, parameters: Parameters, features: Tensor) -> Tensor:
    """What the last layer reads, `[n, d]`, when the head is given features."""
    network, prefix = deployment.network, _prefix(deployment)
    if prefix == _WHOLE_HEAD:
        return features
    # In its place the identity says what it sees.
    width = parameters[f"{prefix}weight"].shape[-1]
    weight = torch.eye(width, dtype=features.dtype, device=features.device)
    unchanged = {f"{prefix}weight": weight, f"{prefix}bias": torch.zeros_like(weight[0])}
    return network.classify({**parameters, **unchanged}, features)


def classified(deployment: Deployment, layer: Parameters, seen: Tensor) -> Tensor:
    """Logits of a last layer, given what it sees."""
    prefix = _prefix(deployment)
    if prefix == _WHOLE_HEAD:
        return deployment.network.classify(layer, seen)
    return linear(seen, layer[f"{prefix}weight"], layer.get(f"{prefix}bias"))


def class_rows(deployment: Deployment) -> Tensor | None:
    """The weights of the last layer, `[K, d]`, if it is linear."""
    return deployment.parameters.get(f"{_prefix(deployment)}weight")


def frozen_features(ctx: ClientContext) -> Tensor:
    """What the last layer sees of the batch in the deployed network."""
    return seen_by_last_layer(ctx.deployment, ctx.deployment.parameters, ctx.deployed_features())


def frozen_reference_features(deployment: Deployment) -> Tensor:
    """What the last layer sees of the reference set in the deployed network."""
    return seen_by_last_layer(deployment, deployment.parameters, deployment.reference_features)


def reference_examination(deployment: Deployment, prior: Tensor) -> Examination:
    """The reference set, weighted so that the mean loss is the estimated risk under a prior (eq:estimated_risk)."""
    labels = deployment.reference.labels
    return Examination(frozen_reference_features(deployment), labels, class_weights(prior, labels))


def loss(deployment: Deployment, head: Parameters, examination: Examination) -> Tensor:
    logits = classified(deployment, head, examination.features)
    return estimated_risk(logits, examination.labels, examination.weights)


def losses(probabilities: Tensor, examination: Examination) -> Tensor:
    """Weighted mean cross-entropies of several predictions `[M, n, K]`; finite where a probability has vanished."""
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return vmap(lambda logits: estimated_risk(logits, examination.labels, examination.weights))(logarithms)


def _prefix(deployment: Deployment) -> str:
    """With which the names of the last layer's tensors begin: a linear one within the head, or the whole head."""
    name, module = list(deployment.network.head.named_modules())[-1]
    is_classifier = isinstance(module, nn.Linear) and module.out_features == deployment.num_classes
    return f"head.{name}." if name and is_classifier else _WHOLE_HEAD
