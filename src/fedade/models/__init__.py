"""Networks by name. A new one is one function and one line here."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.models.batch_norm import name_batch_norms
from fedade.models.foreign import imported_parts, timm_parts
from fedade.models.image import Columns, Pixels, mlp_body, resnet18_body, resnet_3block_body, small_cnn_body
from fedade.models.traced import TracedBody

Body = Callable[[int], tuple[nn.Module, int]]
"""From the number of channels, or of a table's columns, to a body and its feature size."""

MODELS: Mapping[str, Body] = {
    "small-cnn": small_cnn_body,
    "resnet-3block": resnet_3block_body,
    "resnet18": resnet18_body,
    "mlp": mlp_body,
}
OF_TABLES = ("mlp",)
"""Models of rows of numbers; all others read images."""

Parts = Callable[[str, int, int], tuple[nn.Module, nn.Module]]
"""From a name, the number of channels and of classes to a body and a head."""

FAMILIES: Mapping[str, Parts] = {"timm": timm_parts, "import": imported_parts}
"""Networks from elsewhere, by what stands before the colon of their names."""


def build(name: str, input_shape: tuple[int, ...], num_classes: int, first: nn.Module, seed: int) -> Network:
    """A network with fresh weights, which depend on the seed alone; `first` standardises its inputs. `timm:NAME` and
    `import:package.module:callable` name networks from elsewhere."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)  # PyTorch's initialisers take no generator
        body, head = _parts(name, input_shape[0], num_classes)
    traced = TracedBody(first, body).eval()
    traced.trace(torch.zeros((2, *input_shape)))
    name_batch_norms(traced, "body")
    return Network(name, traced, head.eval())


def standardising(mean: Sequence[float], deviation: Sequence[float], input_shape: tuple[int, ...]) -> nn.Module:
    """The first layer of a network of images or of tables, from means and deviations of its inputs as stored."""
    return Columns(mean, deviation) if len(input_shape) == 1 else Pixels(mean, deviation, scale=1.0)


def _parts(name: str, channels: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    family, _, rest = name.partition(":")
    if family in FAMILIES:
        return FAMILIES[family](rest, channels, num_classes)
    if name not in MODELS:
        known = f"{', '.join(MODELS)}, timm:NAME or import:package.module:callable"
        raise FedadeError(f"unknown model {name!r}; known: {known}")
    body, width = MODELS[name](channels)
    return body, nn.Linear(width, num_classes)
