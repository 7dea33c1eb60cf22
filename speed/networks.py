"""Networks that are measured in the docs, or tried in tests, and that the package does not ship."""

from itertools import pairwise

import torch
from torch import Tensor, nn


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


class Block(nn.Module):
    """He et al.'s block with a shortcut without parameters."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.stride = 1 if inner == outer else 2
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, self.stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.padding = (outer - inner) // 2

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(inputs)))))
        shortcut = inputs[:, :, :: self.stride, :: self.stride]
        return torch.relu(hidden + nn.functional.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding)))


class CifarResNet(nn.Module):
    """ResNets of He et al. (2016) for CIFAR, under the names of the public weights.

    The head is defined first on purpose: nobody may take the last layer that is defined for it.
    """

    def __init__(self, blocks: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.linear = nn.Linear(64, num_classes)
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for stage, (inner, outer) in enumerate(((16, 16), (16, 32), (32, 64)), 1):
            widths = [inner] + [outer] * blocks
            setattr(self, f"layer{stage}", nn.Sequential(*(Block(*pair) for pair in pairwise(widths))))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.bn1(self.conv1(inputs)))
        return self.linear(self.layer3(self.layer2(self.layer1(hidden))).mean((2, 3)))


def resnet20(num_classes: int) -> nn.Module:
    """0.27 million parameters."""
    return CifarResNet(3, num_classes)


def resnet56(num_classes: int) -> nn.Module:
    """0.85 million parameters."""
    return CifarResNet(9, num_classes)


class Attention(nn.Module):
    """Among the few tokens of a small image, written as two products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = self.together(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (queries @ keys.mT * queries.shape[-1] ** -0.5).softmax(-1)
        return self.out((weights @ values).transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.perceptron(self.norm2(tokens))


class VisionTransformer(nn.Module):
    """A ViT of the size called tiny (Touvron et al., 2021) on 16 patches of a 32x32 image."""

    def __init__(self, num_classes: int, width: int = 192, depth: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.position = nn.Parameter(torch.zeros(16, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.patches(inputs).flatten(2).mT + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def vit_tiny(num_classes: int) -> nn.Module:
    """5.4 million parameters."""
    return VisionTransformer(num_classes)
