"""Small networks of many shapes, and what they are trained on: digits as images and as a table, another table, tokens.

Each has three sets that share no picture: one to train on, one that is held out, one that streams are drawn from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import transformers
from scipy import ndimage
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn

from fedade.data.sensor_corruptions import SENSOR_STANDARD, corrupt_sensor

SIZE, COPIES, TOKENS, LENGTH = 16, 8, 60, 12


class Labelled(NamedTuple):
    inputs: Tensor
    labels: Tensor


class Task(NamedTuple):
    trained_on: Labelled
    held_out: Labelled
    streamed: Labelled
    corruptions: tuple[str, ...]
    corrupt: Callable[[Tensor, str, int], Tensor]
    """Inputs under a corruption of a severity from 0 to 5."""

    @property
    def classes(self) -> int:
        return int(self.streamed.labels.max()) + 1


def digits(seed: int) -> Task:
    """Grey pictures of 16 pixels, each shifted, turned and sized at random; faults of a sensor."""

    def corrupt(inputs: Tensor, name: str, severity: int) -> Tensor:
        return torch.from_numpy(corrupt_sensor(inputs.numpy(), name, severity, seed))

    return Task(*_drawn_digits(seed), SENSOR_STANDARD, corrupt)


def sums(seed: int) -> Task:
    """A table: sums over the rows and columns of the same pictures; columns drift, or are noisy or missing."""

    def tabled(part: Labelled) -> Labelled:
        values = part.inputs.float().squeeze(1) / 255
        return Labelled(torch.cat([values.sum(1), values.sum(2)], 1) / 4, part.labels)

    return Task(*map(tabled, _drawn_digits(seed)), TABLE_FAULTS, _table_fault(seed, 1.0))


def cancer(seed: int) -> Task:
    """scikit-learn's breast cancer: 30 columns, two classes."""
    data = load_breast_cancer()
    values = torch.from_numpy((data.data - data.data.mean(0)) / data.data.std(0)).float()
    parts = np.array_split(np.random.default_rng(seed).permutation(len(values)), 3)
    labelled = (Labelled(values[rows], torch.tensor(data.target[rows])) for rows in parts)
    return Task(*labelled, TABLE_FAULTS, _table_fault(seed, 1.5))


def texts(seed: int) -> Task:
    """Twelve tokens, of which some speak for a class; corrupted by tokens in place of others."""
    generator = torch.Generator().manual_seed(seed)
    speaking = torch.rand(4, TOKENS, generator=generator) ** 6 + 0.05

    def drawn(number: int) -> Labelled:
        labels = torch.arange(number) % 4
        return Labelled(torch.multinomial(speaking[labels], LENGTH, replacement=True, generator=generator), labels)

    def corrupt(inputs: Tensor, name: str, severity: int) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        replaced = torch.rand(inputs.shape, generator=own) < 0.12 * severity
        other = {"one": 7, "another": 31}.get(name)
        others = torch.randint(TOKENS, inputs.shape, generator=own) if other is None else torch.full_like(inputs, other)
        return torch.where(replaced, others, inputs)

    return Task(drawn(4000), drawn(800), drawn(1000), ("any", "one", "another"), corrupt)


TABLE_FAULTS = ("noise", "offset", "gain", "missing")


def _table_fault(seed: int, strength: float) -> Callable[[Tensor, str, int], Tensor]:
    def corrupt(inputs: Tensor, name: str, severity: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        by_column, by_value = (torch.randn(shape, generator=generator) for shape in (inputs.shape[1:], inputs.shape))
        scale = strength * severity / 5 * inputs.std(0)
        match name:
            case "noise":
                return inputs + scale * by_value
            case "offset":
                return inputs + 0.7 * scale * by_column
            case "gain":
                return inputs * (1 + 0.5 * strength * severity / 5 * by_column)
            case _:
                return torch.where(by_value > 1.5 - 0.3 * severity, inputs.mean(0) * 0, inputs)

    return corrupt


def _drawn_digits(seed: int) -> tuple[Labelled, ...]:
    data = load_digits()
    draw = np.random.default_rng(seed)
    parts = np.array_split(draw.permutation(len(data.target)), (600, 1200))
    return tuple(_transformed(data.images[rows] / 16, data.target[rows], draw) for rows in parts)


def _transformed(images: np.ndarray, labels: np.ndarray, draw: np.random.Generator) -> Labelled:
    made = []
    for image in np.repeat(images, COPIES, axis=0):
        angle, size = draw.normal(0, 0.15), draw.normal(2, 0.15)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) / size
        offset = 3.5 - turn @ (7.5 + draw.normal(0, 0.8, 2))
        made.append(ndimage.affine_transform(image, turn, offset, (SIZE, SIZE), order=1))
    pixels = np.round(255 * np.clip(np.stack(made), 0, 1)).astype(np.uint8)
    return Labelled(torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(np.repeat(labels, COPIES)))


class Pixels(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float() / 128 - 0.5


def _convolutions(norm: Callable[[int], nn.Module], *widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = [Pixels()]
    for inner, outer in pairwise((1, *widths)):
        layers += [nn.Conv2d(inner, outer, 3, 1 if inner == 1 else 2, 1), norm(outer), nn.ReLU()]
    return layers


def cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(*_convolutions(norm, 16, 32, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, inner: int, outer: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        stride = 1 if inner == outer else 2
        self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), norm(outer), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), norm(outer))
        self.shortcut = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(inputs)) + self.shortcut(inputs))


def resnet(norm: Callable[[int], nn.Module]) -> nn.Module:
    blocks = (Block(*widths, norm) for widths in ((12, 12), (12, 24), (24, 24), (24, 32)))
    stem = _convolutions(norm, 12)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def mlp(features: int, classes: int, norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, 32), norm(32), nn.ReLU(), nn.Linear(32, 32), norm(32), nn.ReLU(), nn.Linear(32, classes)
    )


def vit() -> nn.Module:
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.ViTConfig(image_size=SIZE, patch_size=4, num_channels=1, num_labels=10, **size)
    return nn.Sequential(Pixels(), WithoutObject(transformers.ViTForImageClassification(config)))


def bert() -> nn.Module:
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=TOKENS, max_position_embeddings=LENGTH, num_labels=4, **size)
    return transformers.BertForSequenceClassification(config)


class WithoutObject(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model(inputs).logits


def _nothing(_: int) -> nn.Module:
    return nn.Identity()


def _groups(width: int) -> nn.Module:
    return nn.GroupNorm(4, width)


@dataclass(frozen=True)
class Shape:
    task: Callable[[int], Task]
    build: Callable[[], nn.Module]
    epochs: int = 6


SHAPES: Mapping[str, Shape] = {
    "cnn, BatchNorm": Shape(digits, lambda: cnn(nn.BatchNorm2d)),
    "cnn, no norm": Shape(digits, lambda: cnn(_nothing)),
    "cnn, GroupNorm": Shape(digits, lambda: cnn(_groups)),
    "ResNet, BatchNorm": Shape(digits, lambda: resnet(nn.BatchNorm2d)),
    "ResNet, GroupNorm": Shape(digits, lambda: resnet(_groups)),
    "ViT": Shape(digits, vit, 15),
    "MLP on a table": Shape(sums, lambda: mlp(32, 10, _nothing), 15),
    "MLP, BatchNorm": Shape(sums, lambda: mlp(32, 10, nn.BatchNorm1d), 15),
    "MLP, LayerNorm": Shape(sums, lambda: mlp(32, 10, nn.LayerNorm), 15),
    "MLP, two classes": Shape(cancer, lambda: mlp(30, 2, _nothing), 60),
    "BERT": Shape(texts, bert, 8),
}


def trained(shape: Shape, task: Task, seed: int) -> nn.Module:
    """The network after plain training."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        model, (inputs, labels) = shape.build(), task.trained_on
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, shape.epochs)
        model.train()
        for _ in range(shape.epochs):
            for rows in torch.randperm(len(labels)).split(64):
                answer = model(inputs[rows])
                loss = nn.functional.cross_entropy(getattr(answer, "logits", answer), labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            schedule.step()
    return model.eval()
