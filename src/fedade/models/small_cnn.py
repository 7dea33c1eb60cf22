"""`small-cnn`: a residual network for 8x8 to 16x16 images, small but with BatchNorm."""

from torch import nn

from fedade.models.batch_norm import BatchNorm
from fedade.models.convolving import Layers
from fedade.models.residual import BasicBlock, convolution


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
