"""The first layer of every network of images, from stored pixels to normalised floats; and networks of tables."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import normalised_pixels
from fedade.models.batch_norm import BatchNorm

WIDTH = 64


class Pixels(nn.Module):
    """uint8 pixels `[n, channels, height, width]` to floats with the given mean and deviation (0..1 scale).

    Floats pass through the same affine map. Kept inside the network, so that streams stay uint8 wherever they live.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], scale: float = 255.0) -> None:
        super().__init__()
        # Not persistent: constants of the architecture, not weights that clients could share or move.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1) * scale, persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1) * scale, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        dtype = torch.bfloat16 if current_pass().precision == "bf16" else self.mean.dtype
        return normalised_pixels(pixels, self.mean.flatten(), self.deviation.flatten(), dtype)


class Columns(nn.Module):
    """The first layer of a network of tables: columns with mean 0 and deviation 1 on the training rows."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        # Not persistent, as of pixels: constants of the architecture, not weights that clients could share or move.
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation


def mlp_body(features: int) -> tuple[nn.Module, int]:
    """Two layers of 64 units with BatchNorm, for tables."""
    layers = [
        nn.Linear(features, WIDTH),
        BatchNorm(WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        BatchNorm(WIDTH),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers), WIDTH
