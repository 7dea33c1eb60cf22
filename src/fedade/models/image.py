"""Networks of images, the paper's and a small one like these, and of tables; and their first layers, which standardise
what is stored."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import normalised_pixels
from fedade.models.batch_norm import BatchNorm

WIDTH = 64


class Columns(nn.Module):
    """The first layer of a network of tables: columns with mean 0 and deviation 1 on the training rows."""

    mean: Tensor
    deviation: Tensor
    plane: tuple[int, ...] = ()
    """Axes after the one that has means and deviations of its own."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], scale: float = 1.0) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("deviation", deviation)):
            # Not persistent: constants of the architecture, not weights that clients could share or move.
            self.register_buffer(name, torch.tensor(values).view(-1, *self.plane) * scale, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.deviation


class UnitImages(Columns):
    """Images from 0 to 1 with the mean and deviation that a network was trained with."""

    plane = (1, 1)


class Pixels(UnitImages):
    """uint8 pixels `[n, channels, height, width]` to floats with the given mean and deviation (0..1 scale). Floats pass
    through the same affine map. Kept inside the network, so that streams stay uint8 wherever they live."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], scale: float = 255.0) -> None:
        super().__init__(mean, deviation, scale)

    def forward(self, pixels: Tensor) -> Tensor:
        dtype = torch.bfloat16 if current_pass().precision == "bf16" else self.mean.dtype
        return normalised_pixels(pixels, self.mean.flatten(), self.deviation.flatten(), dtype)


class GlobalAverage(nn.Module):
    """Mean over the image plane: `[n, c, h, w]` to `[n, c]`."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((-2, -1), dtype=torch.float32 if inputs.dtype is torch.bfloat16 else None)


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Without bias; it keeps the size, up to its stride."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm1 = BatchNorm(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = BatchNorm(outputs)
        self.shortcut: nn.Module = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(inputs)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))


def mlp_body(features: int) -> tuple[nn.Module, int]:
    """Two layers of 64 units with BatchNorm, for tables."""
    first = nn.Linear(features, WIDTH), BatchNorm(WIDTH), nn.ReLU()
    return nn.Sequential(*first, nn.Linear(WIDTH, WIDTH), BatchNorm(WIDTH), nn.ReLU()), WIDTH


def resnet_3block_body(channels: int) -> tuple[nn.Module, int]:
    """CIFAR networks of the paper: blocks of 32, 64 and 128 channels, about 0.3 M parameters."""
    body = nn.Sequential(
        convolution(channels, 32),
        BatchNorm(32),
        nn.ReLU(),
        BasicBlock(32, 32),
        BasicBlock(32, 64, stride=2),
        BasicBlock(64, 128, stride=2),
        GlobalAverage(),
    )
    return body, 128


def resnet18_body(channels: int) -> tuple[nn.Module, int]:
    """ResNet-18 for images of 32 and 64 pixels: a 3x3 stem without pooling (He et al., 2016, as used on CIFAR)."""
    blocks = [BasicBlock(64, 64), BasicBlock(64, 64)]
    for width in (128, 256, 512):
        blocks += [BasicBlock(width // 2, width, stride=2), BasicBlock(width, width)]
    body = nn.Sequential(convolution(channels, 64), BatchNorm(64), nn.ReLU(), *blocks, GlobalAverage())
    return body, 512


def small_cnn_body(channels: int, width: int = 16) -> tuple[nn.Module, int]:
    """A stem, one residual block and 2x2 average pooling, for images of 8 to 16 pixels."""
    body = nn.Sequential(
        convolution(channels, width, stride=2),
        BatchNorm(width),
        nn.ReLU(),
        BasicBlock(width, 2 * width, stride=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    return body, 8 * width
