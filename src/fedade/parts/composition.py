"""Which tensors a client computes with, and which it keeps."""

from torch import Tensor

from fedade.core.method import ClientContext, Deployment
from fedade.core.split import Parameters


def effective(deployment: Deployment, shared: Parameters, own: Parameters) -> dict[str, Tensor]:
    """A client's model: what was deployed, under what was broadcast since, under what is its own."""
    return {**deployment.parameters, **shared, **own}


def own_model(ctx: ClientContext, own: Parameters) -> dict[str, Tensor]:
    """The model of a context's client: deployed, under what was broadcast since, under what is its own."""
    return effective(ctx.deployment, ctx.shared, own)


def own_prediction(ctx: ClientContext, own: Parameters) -> Tensor:
    """Class probabilities of a client's own model on its batch, with the statistics in it."""
    model = own_model(ctx, own)
    return ctx.deployment.network.classify(model, ctx.own_features(model)).softmax(-1)


def trainable(deployment: Deployment) -> dict[str, Tensor]:
    """The deployed tensors that gradient steps may move; normalisation statistics stay where they are."""
    names = deployment.network.trainable()
    return {name: value for name, value in deployment.parameters.items() if name in names}


def trainable_shared(deployment: Deployment) -> dict[str, Tensor]:
    return deployment.split.shared(trainable(deployment))


def trainable_personal(deployment: Deployment) -> dict[str, Tensor]:
    return deployment.split.personal_part(trainable(deployment))


def trainable_part(deployment: Deployment, own: Parameters) -> dict[str, Tensor]:
    """A client's own personal tensors that gradient steps may move: never normalisation statistics."""
    names = deployment.network.trainable()
    return {name: value for name, value in deployment.split.personal_part(own).items() if name in names}
