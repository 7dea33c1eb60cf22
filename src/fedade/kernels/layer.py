"""How convolutions hang together, as data."""

from dataclasses import dataclass, replace
from functools import reduce


@dataclass(frozen=True)
class Layer:
    """relu(conv(tensor[source]) + bias + tensor[residual]), the relu and the residual if asked for.

    Tensors are numbered: first the inputs, then the output of every layer in turn.
    """

    source: int
    stride: int = 1
    residual: int | None = None
    relu: bool = True


Chain = tuple[Layer, ...]
"""Layers whose last output is the result; every other output is used by a later layer."""


def residual_block(inputs: int, outputs: int, stride: int = 1) -> Chain:
    """Two 3x3 convolutions and a shortcut (He et al., 2016), where tensor 0 is the input.

    The order of its layers: first convolution, shortcut convolution if the shortcut is not the identity, second
    convolution.
    """
    if stride == 1 and inputs == outputs:
        return Layer(0), Layer(1, residual=0)
    return Layer(0, stride), Layer(0, stride, relu=False), Layer(1, residual=2)


def joined(*chains: Chain) -> Chain:
    """Chains with one input each, one after the other."""
    return reduce(_followed_by, chains)


def _followed_by(first: Chain, second: Chain) -> Chain:
    # Tensor 0 of the second chain is the last of the first, whose number is its length.
    shift = len(first)
    moved = (
        replace(layer, source=layer.source + shift, residual=None if layer.residual is None else layer.residual + shift)
        for layer in second
    )
    return (*first, *moved)
