"""Tilings suit the kernels."""

from hypothesis import given
from hypothesis import strategies as st

from fedade.kernels.tilings import input_gradient_tiling, product_tiling, weight_gradient_tiling


@given(
    channels=st.integers(1, 600),
    outputs=st.integers(1, 600),
    stride=st.sampled_from([1, 2]),
    size=st.sampled_from([2, 4]),
    kernel=st.sampled_from([1, 3]),
)
def test_every_shape_has_blocks_that_tensor_cores_can_take(
    channels: int, outputs: int, stride: int, size: int, kernel: int
) -> None:
    product = product_tiling(channels, outputs, stride, size, kernel)
    of_input = input_gradient_tiling(outputs, channels, stride, size, kernel)
    of_weights = weight_gradient_tiling(channels, outputs, stride, size).block
    for tiling in (product, of_input, of_weights):
        for block in (tiling.groups, tiling.breadth, tiling.depth):
            assert block >= 16
            assert block & (block - 1) == 0
        assert tiling.groups * tiling.breadth <= 128 * 128
    assert of_input.outputs % stride == 0


def test_tokens_of_192_numbers_leave_no_block_half_empty() -> None:
    assert product_tiling(768, 192, 1, 2, kernel=1).breadth == 64
    assert input_gradient_tiling(768, 192, 1, 2, kernel=1).breadth == 64
    assert input_gradient_tiling(192, 768, 1, 2, kernel=1).breadth == 128
