"""Residual blocks, the common stock of the convolutional networks here."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.models.batch_norm import BatchNorm


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the size, up to its stride."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm1 = BatchNorm(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = BatchNorm(outputs)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """relu(two layers + shortcut)."""
        hidden = F.relu(self.norm1(self.conv1(inputs)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))


class GlobalAverage(nn.Module):
    """Mean over the image plane: `[n, c, h, w]` to `[n, c]`."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Features."""
        return inputs.mean((-2, -1))
