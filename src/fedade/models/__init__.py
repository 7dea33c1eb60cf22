"""Networks by name. A new one is one function and one line here."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.models.batch_norm import name_batch_norms
from fedade.models.image import Pixels
from fedade.models.resnets import resnet18_body, resnet_3block_body
from fedade.models.small_cnn import small_cnn_body

Body = Callable[[int], tuple[nn.Module, int]]
"""From the number of channels to a body and its feature size."""

MODELS: Mapping[str, Body] = {
    "small-cnn": small_cnn_body,
    "resnet-3block": resnet_3block_body,
    "resnet18": resnet18_body,
}


def build(name: str, input_shape: tuple[int, ...], num_classes: int, pixels: Pixels, seed: int) -> Network:
    """A network with fresh weights, which depend on the seed alone."""
    if name not in MODELS:
        raise FedadeError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)  # PyTorch's initialisers take no generator
        body, width = MODELS[name](input_shape[0])
        head = nn.Linear(width, num_classes)
    body = nn.Sequential(pixels, body)
    name_batch_norms(body, "body")
    return Network(name, body.eval(), head.eval())
