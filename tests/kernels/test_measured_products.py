"""Products leave the moments of what they store: those of the same images, read again."""

import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fedade import kernels
from fedade.kernels import reference
from fedade.kernels.geometry import Image
from fedade.kernels.layer import Layer
from fedade.kernels.native import chain

LANES, SAMPLES = 2, 3


@pytest.fixture(scope="module")
def measuring(lanes: ModuleType) -> ModuleType:
    return importlib.import_module(lanes.measured_convolution.__module__)


@pytest.fixture
def on_lanes(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU would run."""
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: True)
    monkeypatch.setattr(chain, "suits", lambda *_: False)
    monkeypatch.setattr(chain, "suits_images", lambda *_: False)


def randoms(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("size", "channels", "outputs", "kernel", "stride", "samples"),
    [
        ((8, 8), 16, 16, 3, 1, 3),  # walks: several images in a block
        ((20, 16), 16, 16, 3, 1, 2),  # several strips, of unequal height
        ((2, 256), 16, 16, 3, 1, 1),  # an image wider than a block
        ((8, 4), 32, 32, 3, 1, 9),  # blocks: several images in one, the last one not full
        ((16, 16), 4, 24, 3, 1, 2),  # an image of several blocks, and of channels that do not fill one
        ((8, 7), 32, 32, 1, 1, 3),  # groups that end beyond the row
        ((8, 8), 16, 144, 3, 2, 2),  # more channels than a block
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])  # bf16 is not interpreted
def test_moments_are_those_of_what_is_stored(
    measuring: ModuleType,
    size: tuple[int, int],
    channels: int,
    outputs: int,
    kernel: int,
    stride: int,
    samples: int,
    dtype: torch.dtype,
) -> None:
    images = randoms(LANES, samples, *size, channels).to(dtype)
    weights = (randoms(LANES, outputs, kernel, kernel, channels) / 8).to(dtype)
    bias = randoms(LANES, outputs)
    assert measuring.leaves_moments(Image(*size, channels), outputs, kernel, stride, dtype.itemsize)
    output, moments = measuring.measured_convolution(images, weights, stride, bias, "float32")
    alone = measuring.convolve(images, weights, stride, measuring.Epilogue(bias), "float32")
    assert torch.equal(output, alone)
    expected = [reference.channel_moments(own.permute(0, 3, 1, 2)) for own in output]
    torch.testing.assert_close(moments, torch.stack(expected, 1), rtol=1e-5, atol=1e-5)


def test_small_pieces_are_not_worth_their_sums(measuring: ModuleType) -> None:
    assert not measuring.leaves_moments(Image(7, 7, 64), 64, 3, 1, 2)
    assert measuring.leaves_moments(Image(8, 8, 64), 64, 3, 1, 2)


@pytest.mark.parametrize("prepared", [True, False], ids=["ready weights", ""])
@pytest.mark.parametrize("own", [True, False], ids=["own weights", "common weights"])
@pytest.mark.parametrize(
    ("size", "channels", "groups", "biased"),
    [(8, 3, 1, True), (8, 16, 1, False), (8, 16, 2, False), (5, 16, 1, False), (5, 16, 1, True)],
)
def test_clients_at_once_as_one_by_one(
    on_lanes: None, prepared: bool, own: bool, size: int, channels: int, groups: int, biased: bool
) -> None:
    images = randoms(LANES, SAMPLES, channels, size, size).half()
    weights = randoms(LANES, 16, channels // groups, 3, 3) / 8
    biases = randoms(LANES, 16) if biased else None

    def one(image: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        layer = Layer(0, relu=False, groups=groups)
        (ready,) = kernels.ready_weights([layer], [weight], image.dtype) if prepared else (None,)
        return kernels.convolved_and_measured(layer, image, weight, bias, ready=ready)

    place = 0 if own else None
    of_weights = [value if own or value is None else value[0] for value in (weights, biases)]
    with torch.no_grad():
        found, moments = vmap(one, (0, place, place if biased else None))(images, *of_weights)
    assert found.dtype is torch.float16
    for client, image in enumerate(images):
        weight, bias = (value if value is None or not own else value[client] for value in of_weights)
        exact = torch.conv2d(image.float(), weight.half().float(), bias, padding=1, groups=groups)
        torch.testing.assert_close(found[client].float(), exact, rtol=4e-3, atol=8e-3)
        torch.testing.assert_close(
            moments[client], reference.channel_moments(found[client]), rtol=1e-4, atol=1e-5, check_dtype=False
        )
