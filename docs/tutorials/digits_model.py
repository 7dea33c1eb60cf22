"""Something to adapt: scikit-learn's handwritten digits, and a small network that was trained on some of them."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


def digits(noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """1,797 grey images of 8 x 8 pixels from a noisy camera, `[n, 1, 8, 8]` in bytes, and what they show."""
    images, labels = load_digits(return_X_y=True)
    draws = torch.Generator().manual_seed(0)
    ink = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    seen = (ink + noise * torch.randn(ink.shape, generator=draws) + 0.75) / 2.5
    order = torch.randperm(len(labels), generator=draws)
    return (seen.clamp(0, 1) * 255).to(torch.uint8)[order], torch.tensor(labels)[order]


class Unit(nn.Module):
    """Bytes to numbers from 0 to 1."""

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.float() / 255


def trained_network(images: Tensor, labels: Tensor, epochs: int = 12) -> nn.Module:
    """A convolutional network with batch normalisation, trained as usual."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        network = nn.Sequential(
            Unit(),
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)),
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(50):
                loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return network.eval()
