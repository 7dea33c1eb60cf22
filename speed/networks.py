"""Networks that are measured in the docs and that the package does not ship."""

from torch import nn


def group_cnn(num_classes: int) -> nn.Module:
    """A small network for the digits without BatchNorm."""
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    return nn.Sequential(body, nn.Linear(128, num_classes))
