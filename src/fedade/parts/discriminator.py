"""A small network that tells from a feature which domain it comes from."""

import math

import torch
from torch import Tensor
from torch.nn.functional import linear, relu

from fedade.maths.counter import uniform
from fedade.maths.signals.directions import directions

Discriminator = dict[str, Tensor]


def new_discriminator(like: Tensor, width: int, purpose: int = 0) -> Discriminator:
    """Fresh weights for features such as `like` `[d]`, the same for every client (He et al., 2015, uniform)."""
    key = torch.zeros((), dtype=torch.int64, device=like.device)
    size = len(like)

    def weights(outputs: int, inputs: int, layer: int) -> Tensor:
        return (2 * uniform(key, (outputs, inputs), 2 * purpose + layer) - 1) * math.sqrt(6 / inputs)

    return {
        "hidden.weight": weights(width, size, 0).to(like.dtype),
        "hidden.bias": like.new_zeros(width),
        "output.weight": weights(1, width, 1).to(like.dtype),
        "output.bias": like.new_zeros(1),
    }


def domain_logits(discriminator: Discriminator, features: Tensor) -> Tensor:
    """Log-odds `[n]` that features `[n, d]` are the source's.

    Only their direction counts: features that mislead an adversary could otherwise grow without end.
    """
    headings = math.sqrt(features.shape[-1]) * directions(features)
    hidden = relu(linear(headings, discriminator["hidden.weight"], discriminator["hidden.bias"]))
    return linear(hidden, discriminator["output.weight"], discriminator["output.bias"]).squeeze(-1)
