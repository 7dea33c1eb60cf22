"""A full model of a client's own."""

from torch import Tensor

from fedade.core.deployment import Deployment


def trainable_parameters(deployment: Deployment) -> dict[str, Tensor]:
    """All parameters as deployed, less the normalisation statistics."""
    trainable = deployment.network.trainable()
    return {name: value for name, value in deployment.parameters.items() if name in trainable}
