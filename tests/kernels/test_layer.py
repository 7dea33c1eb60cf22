"""Chains of layers describe the networks that they stand for; tilings suit the kernels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.seeds import Seeds
from fedade.kernels import Layer, fused_layers, joined, residual_block
from fedade.kernels.tilings import input_gradient_tiling, product_tiling, weight_gradient_tiling
from fedade.models.residual import BasicBlock, convolution


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 4, 2), (4, 8, 1), (4, 8, 2)])
def test_a_residual_block_is_the_one_of_the_models(inputs: int, outputs: int, stride: int) -> None:
    block = BasicBlock(inputs, outputs, stride).eval()
    images = torch.from_numpy(Seeds(0).generator("images").normal(size=(2, inputs, 6, 6))).float()
    # New normalisation layers divide by sqrt(1 + eps): near enough to nothing.
    shortcut = [block.shortcut[0].weight] if isinstance(block.shortcut, torch.nn.Sequential) else []
    weights = [block.conv1.weight, *shortcut, block.conv2.weight]
    chain = residual_block(inputs, outputs, stride)
    result = fused_layers(chain, [images], weights, [torch.zeros(outputs)] * len(weights))
    torch.testing.assert_close(result, block(images), rtol=1e-3, atol=1e-3)


def test_joined_chains_are_their_composition() -> None:
    images = torch.from_numpy(Seeds(0).generator("images").normal(size=(2, 3, 6, 6))).float()
    stem, first, second = convolution(3, 4), convolution(4, 4), convolution(4, 4)
    between = fused_layers((Layer(0),), [images], [stem.weight], [torch.zeros(4)])
    weights = [first.weight, second.weight]
    expected = fused_layers(residual_block(4, 4), [between], weights, [torch.zeros(4)] * 2)
    chain = joined((Layer(0),), residual_block(4, 4))
    result = fused_layers(chain, [images], [stem.weight, *weights], [torch.zeros(4)] * 3)
    torch.testing.assert_close(result, expected)


@given(
    channels=st.integers(1, 600),
    outputs=st.integers(1, 600),
    stride=st.sampled_from([1, 2]),
    size=st.sampled_from([2, 4]),
)
def test_every_shape_has_blocks_that_tensor_cores_can_take(channels: int, outputs: int, stride: int, size: int) -> None:
    product = product_tiling(channels, outputs, stride, size)
    of_input = input_gradient_tiling(outputs, channels, stride, size)
    of_weights = weight_gradient_tiling(channels, outputs, stride, size).block
    for tiling in (product, of_input, of_weights):
        for block in (tiling.groups, tiling.breadth, tiling.depth):
            assert block >= 16
            assert block & (block - 1) == 0
        assert tiling.groups * tiling.breadth <= 128 * 128
    assert of_input.outputs % stride == 0
