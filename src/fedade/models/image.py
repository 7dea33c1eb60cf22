"""The first layer of every network of images, from stored pixels to normalised floats; and networks of tables."""

from collections.abc import Sequence

import torch
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


def mlp_body(features: int) -> tuple[nn.Module, int]:
    """Two layers of 64 units with BatchNorm, for tables."""
    first = nn.Linear(features, WIDTH), BatchNorm(WIDTH), nn.ReLU()
    return nn.Sequential(*first, nn.Linear(WIDTH, WIDTH), BatchNorm(WIDTH), nn.ReLU()), WIDTH
