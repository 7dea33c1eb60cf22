"""Batch statistics at test time, and the scales and shifts of normalisation layers that test-time methods move."""

from itertools import takewhile

from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.method import ClientContext, Deployment
from fedade.core.normalisation import Mixed
from fedade.core.split import Parameters
from fedade.parts.composition import trainable


def batch_logits(deployment: Deployment, own: Parameters, inputs: Tensor) -> Tensor:
    """Logits of the deployed model with a client's own layers, normalised by the statistics of the batch itself."""
    return deployment.network.logits({**deployment.parameters, **own}, inputs, Mixed(1.0))


def own_batch_logits(ctx: ClientContext, own: Parameters) -> Tensor:
    """Logits of a context's batch under its own statistics, with the layers of the state that comes with it."""
    model = {**ctx.deployment.parameters, **own}
    return ctx.deployment.network.classify(model, ctx.own_features(model, Mixed(1.0)))


def norm_affine(deployment: Deployment, method: str, include_last_stage: bool = True) -> dict[str, Tensor]:
    """Scales and shifts as deployed: of BatchNorm, LayerNorm, GroupNorm or RMSNorm, whatever the model has."""
    layers = _norm_layers(deployment)
    if not include_last_stage:
        layers = layers[: len(layers) - _last_stage(layers)]
    if not layers:
        raise FedadeError(
            f"{method}: model {deployment.network.name!r} has no normalisation layer to adapt; "
            "choose a model that has some, such as small-cnn, or a method that needs none, such as source"
        )
    return {name: value for layer in layers for name, value in layer.items()}


def adaptable(deployment: Deployment) -> dict[str, Tensor]:
    """All that gradient steps may move, and normalisation scales and shifts also where training leaves them alone."""
    return trainable(deployment) | {name: value for layer in _norm_layers(deployment) for name, value in layer.items()}


def _norm_layers(deployment: Deployment) -> list[dict[str, Tensor]]:
    """Scale and shift of each layer, in the network's order; by the name of its class: libraries bring their own."""
    network, parameters = deployment.network, deployment.parameters
    layers = [
        {name: parameters[name] for name in (f"{part}.{layer}.weight", f"{part}.{layer}.bias") if name in parameters}
        for part, modules in (("body", network.body), ("head", network.head))
        for layer, module in modules.named_modules()
        if "norm" in type(module).__name__.lower()
    ]
    return [layer for layer in layers if layer]


def _last_stage(layers: list[dict[str, Tensor]]) -> int:
    """How many layers end the list with one width; a quarter of them where all are equally wide, as in SAR's ViT."""
    widths = [next(iter(layer.values())).numel() for layer in layers]
    same = len(list(takewhile(lambda width: width == widths[-1], reversed(widths))))
    return same if same < len(widths) else len(widths) // 4
