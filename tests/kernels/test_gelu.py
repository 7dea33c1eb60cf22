"""Gelus that are part of a product, and their slopes in its gradient, are right far from zero too."""

from collections.abc import Callable
from types import ModuleType

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import grad

from fedade.kernels import Layer

CHAIN = (Layer(0, relu=False, gelu=True), Layer(1, relu=False))
"""The second layer's gradient meets the gelu's slope."""


def values_and_slopes(function: Callable[[Tensor], Tensor], shown: Tensor) -> tuple[Tensor, Tensor]:
    return function(shown), grad(lambda images: function(images).sum())(shown)


def test_a_gelu_and_its_slope(lanes: ModuleType) -> None:
    shown = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([0.0, -40.0, 40.0])]).reshape(1, 1, 10, 10)
    one, none = torch.ones(1, 1, 1, 1), torch.zeros(1)

    def ours(images: Tensor) -> Tensor:
        result: Tensor = lanes.fused_layers(CHAIN, [images], [one, one], [none, none], "float32")
        return result

    found, slopes = values_and_slopes(ours, shown)
    expected, expected_slopes = values_and_slopes(F.gelu, shown)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slopes, expected_slopes, rtol=1e-6, atol=1e-6)
