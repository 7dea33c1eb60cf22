"""Image networks: the paper's, three residual blocks and ResNet-18 with a 3x3 stem; and a small one like these."""

from torch import nn

from fedade.models.batch_norm import BatchNorm
from fedade.models.convolving import BasicBlock, GlobalAverage, Layers, convolution


def resnet_3block_body(channels: int) -> tuple[nn.Module, int]:
    """CIFAR networks of the paper: blocks of 32, 64 and 128 channels, about 0.3 M parameters."""
    body = Layers(
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
    body = Layers(convolution(channels, 64), BatchNorm(64), nn.ReLU(), *blocks, GlobalAverage())
    return body, 512


def small_cnn_body(channels: int, width: int = 16) -> tuple[nn.Module, int]:
    """A stem, one residual block and 2x2 average pooling, for images of 8 to 16 pixels."""
    body = Layers(
        convolution(channels, width, stride=2),
        BatchNorm(width),
        nn.ReLU(),
        BasicBlock(width, 2 * width, stride=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    return body, 8 * width
