"""Which tensors a client computes with, and which it keeps."""

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.split import Parameters


def effective(deployment: Deployment, shared: Parameters, own: Parameters) -> dict[str, Tensor]:
    """A client's model: what was deployed, under what was broadcast since, under what is its own."""
    return {**deployment.parameters, **shared, **own}


def trainable_part(deployment: Deployment, own: Parameters) -> dict[str, Tensor]:
    """Those of a client's own personal tensors that gradient steps may move: never normalisation statistics."""
    trainable = deployment.network.trainable()
    return {name: value for name, value in deployment.split.private(own).items() if name in trainable}
