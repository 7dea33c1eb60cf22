"""Convolutions that walk down rows are those of plain PyTorch, and are chosen where they can be."""

import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor

from fedade.kernels.geometry import Image, forward_window, input_gradient_window

LANES, SAMPLES = 2, 3


@pytest.fixture(scope="module")
def launching(lanes: ModuleType) -> ModuleType:
    return importlib.import_module(lanes.convolve.__module__)


def randoms(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def expected_of(images: Tensor, weights: Tensor) -> Tensor:
    """By lane; all in the order of the kernels' memory."""
    each = [
        torch.conv2d(some.permute(0, 3, 1, 2).float(), own.permute(0, 3, 1, 2).float(), padding=1).permute(0, 2, 3, 1)
        for some, own in zip(images, weights.expand(len(images), *weights.shape[1:]), strict=True)
    ]
    return torch.stack(each)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (17, 6), (1, 2), (9, 32)])
@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (16, 32), (16, 8)])
@pytest.mark.parametrize("own", [True, False], ids=["own weights", "common weights"])
def test_a_layer_and_what_follows_it(
    launching: ModuleType, height: int, width: int, channels: int, outputs: int, own: bool
) -> None:
    images = randoms(LANES, SAMPLES, height, width, channels)
    weights = randoms(LANES if own else 1, outputs, 3, 3, channels) / 8
    bias, residual = randoms(LANES, outputs).float(), randoms(LANES, SAMPLES, height, width, outputs)
    assert launching.walk(forward_window(Image(height, width, channels), outputs, 3, 1, launching.OUTPUTS), 2)
    epilogue = launching.Epilogue(bias, residual, rectified=True)
    found = launching.convolve(images, weights, 1, epilogue, "float32")
    expected = expected_of(images, weights) + bias[:, None, None, None] + residual.float()
    torch.testing.assert_close(found.float(), expected.relu(), rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (17, 6)])
@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (32, 16)])
def test_the_gradient_of_the_images(
    launching: ModuleType, height: int, width: int, channels: int, outputs: int
) -> None:
    image = Image(height, width, channels)
    gradient, weights = randoms(LANES, SAMPLES, height, width, outputs), randoms(LANES, outputs, 3, 3, channels) / 8
    gate, before = randoms(LANES, SAMPLES, *vars(image).values()), randoms(LANES, SAMPLES, *vars(image).values()) + 1
    assert launching.walk(input_gradient_window(image, outputs, 3, 1, launching.OUTPUTS), 2)
    epilogue = launching.Epilogue(residual=before, gate=gate)
    found = launching.input_gradient(gradient, weights, image, 1, epilogue, "float32")
    turned = weights.flip(2, 3).transpose(1, 4)
    expected = torch.where(gate > 0, expected_of(gradient, turned) + before.float(), 0.0)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("image", "outputs", "kernel", "stride", "bytes_each"),
    [
        (Image(8, 8, 16), 16, 3, 1, 4),  # float32 fills the memory beside a processor
        (Image(8, 8, 16), 16, 3, 2, 2),
        (Image(8, 8, 16), 16, 1, 1, 2),
        (Image(8, 7, 16), 16, 3, 1, 2),  # half a group
        (Image(8, 8, 32), 32, 3, 1, 2),
        (Image(8, 8, 16), 12, 3, 1, 2),
        (Image(8, 8, 3), 16, 3, 1, 2),
    ],
)
def test_others_are_cut_into_blocks(
    launching: ModuleType, image: Image, outputs: int, kernel: int, stride: int, bytes_each: int
) -> None:
    assert launching.walk(forward_window(image, outputs, kernel, stride, launching.OUTPUTS), bytes_each) is None
