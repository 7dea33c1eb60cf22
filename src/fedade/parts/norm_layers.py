"""Batch statistics at test time, and the scales and shifts of normalisation layers that TENT and SAR move."""

from itertools import takewhile

from torch import Tensor, nn

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.normalisation import Mixed
from fedade.core.split import Parameters


def batch_logits(deployment: Deployment, own: Parameters, inputs: Tensor) -> Tensor:
    """Logits of the deployed model with a client's own layers, normalised by the statistics of the batch itself."""
    return deployment.network.logits({**deployment.parameters, **own}, inputs, Mixed(1.0))


def norm_affine(deployment: Deployment, method: str, include_last_stage: bool = True) -> dict[str, Tensor]:
    """Scales and shifts as deployed: of BatchNorm, LayerNorm, GroupNorm or RMSNorm, whatever the model has."""
    layers = _norm_layers(deployment.network)
    if not include_last_stage:
        layers = layers[: len(layers) - _last_stage(layers)]
    if not layers:
        raise FedadeError(
            f"{method}: model {deployment.network.name!r} has no normalisation layer to adapt; "
            "choose a model that has some, such as small-cnn, or a method that needs none, such as source"
        )
    return {
        f"{layer}.{name}": deployment.parameters[f"{layer}.{name}"]
        for layer, module in layers
        for name, _ in module.named_parameters(recurse=False)
    }


def _norm_layers(network: Network) -> list[tuple[str, nn.Module]]:
    """Layers in the order of the network, by the name of their class: libraries bring norms of their own."""
    return [
        (f"{part}.{name}", module)
        for part, modules in (("body", network.body), ("head", network.head))
        for name, module in modules.named_modules()
        if "norm" in type(module).__name__.lower() and any(True for _ in module.parameters(recurse=False))
    ]


def _last_stage(layers: list[tuple[str, nn.Module]]) -> int:
    """How many layers end the list with one width; a quarter of them where all are equally wide, as in SAR's ViT."""
    widths = [next(module.parameters(recurse=False)).numel() for _, module in layers]
    same = len(list(takewhile(lambda width: width == widths[-1], reversed(widths))))
    return same if same < len(widths) else len(widths) // 4
