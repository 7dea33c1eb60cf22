"""Networks of tables: rows of numbers, `[n, features]`."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedade.models.batch_norm import BatchNorm

WIDTH = 64


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
