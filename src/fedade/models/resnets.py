"""The paper's image networks: a CNN with three residual blocks, and ResNet-18 with a 3x3 stem."""

from torch import nn

from fedade.models.batch_norm import BatchNorm
from fedade.models.convolving import GlobalAverage, Layers
from fedade.models.residual import BasicBlock, convolution


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
    widths = (64, 128, 256, 512)
    blocks: list[nn.Module] = []
    inputs = 64
    for stage, width in enumerate(widths):
        blocks += [BasicBlock(inputs, width, stride=1 if stage == 0 else 2), BasicBlock(width, width)]
        inputs = width
    body = Layers(convolution(channels, 64), BatchNorm(64), nn.ReLU(), *blocks, GlobalAverage())
    return body, 512
