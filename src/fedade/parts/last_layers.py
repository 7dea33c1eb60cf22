"""Many last layers over one frozen body: their predictions, their losses, and steps on them."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from fedade.core.deployment import Deployment
from fedade.core.split import Parameters
from fedade.maths.risks import class_weights, estimated_risk
from fedade.parts.supervision import descend


class Examination(NamedTuple):
    """Samples by whose weighted loss models are judged and trained."""

    features: Tensor
    labels: Tensor
    weights: Tensor


def last_layer(deployment: Deployment) -> dict[str, Tensor]:
    """The head as deployed."""
    return {name: value for name, value in deployment.parameters.items() if name.startswith("head.")}


def frozen_features(deployment: Deployment, inputs: Tensor) -> Tensor:
    """Features of the deployed body."""
    return deployment.network.represent(deployment.parameters, inputs)


def reference_examination(deployment: Deployment, prior: Tensor) -> Examination:
    """The reference set, weighted so that the mean loss is the estimated risk under a prior (eq:estimated_risk)."""
    inputs, labels = deployment.reference
    return Examination(frozen_features(deployment, inputs), labels, class_weights(prior, labels))


def loss(deployment: Deployment, head: Parameters, examination: Examination) -> Tensor:
    """Weighted mean cross-entropy of one last layer."""
    logits = deployment.network.classify(head, examination.features)
    return estimated_risk(logits, examination.labels, examination.weights)


def losses(probabilities: Tensor, examination: Examination) -> Tensor:
    """The same of several predictions `[M, n, K]`; finite where a probability has vanished."""
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return vmap(lambda one: estimated_risk(one, examination.labels, examination.weights))(logarithms)


def stepped(
    deployment: Deployment, head: Parameters, examination: Examination, rate: Tensor, steps: int
) -> dict[str, Tensor]:
    """A last layer after SGD steps on the whole examination."""
    return descend(lambda moved, _: loss(deployment, moved, examination), head, rate, [None] * steps)
