"""Networks as users bring them, small, with weights that depend on a seed alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from speed.networks import CifarResNet
from torch import Tensor, nn


class Answer(NamedTuple):
    """As Hugging Face's modules return it."""

    loss: Tensor | None
    logits: Tensor


class WithLogits(nn.Module):
    """A module that returns an object with `.logits`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Answer:
        return Answer(None, self.model(inputs))


def cnn(channels: int, classes: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2, 1), norm(8), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), norm(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, classes),
    )  # fmt: skip


def mlp(features: int, classes: int, norm: bool) -> nn.Module:
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(features, 16), *middle, nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes))


class Sample(NamedTuple):
    """A model and inputs that it takes."""

    model: nn.Module
    inputs: Tensor
    classes: int


def transformer(kind: str) -> Sample:
    import transformers

    size = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_labels": 3,
    }
    if kind == "vit":
        config = transformers.ViTConfig(image_size=16, patch_size=8, **size)
        return Sample(transformers.ViTForImageClassification(config), torch.rand(90, 3, 16, 16), 3)
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=16, **size)
    return Sample(transformers.BertForSequenceClassification(config), torch.randint(0, 40, (90, 7)), 3)


MODELS: dict[str, Callable[[], Sample]] = {
    "resnet-20": lambda: Sample(CifarResNet(), torch.rand(120, 3, 16, 16), 10),
    "small cnn": lambda: Sample(cnn(3, 4), torch.rand(120, 3, 12, 10), 4),
    "grey images": lambda: Sample(cnn(1, 4), torch.rand(120, 1, 9, 9), 4),
    "object with logits": lambda: Sample(WithLogits(cnn(3, 4)), torch.rand(120, 3, 8, 8), 4),
    "group norm": lambda: Sample(cnn(3, 4, lambda width: nn.GroupNorm(2, width)), torch.rand(120, 3, 8, 8), 4),
    "layer norm": lambda: Sample(
        nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3)), torch.rand(90, 6), 3
    ),
    "vision transformer": lambda: transformer("vit"),
    "bert": lambda: transformer("bert"),
}


def made(name: str, seed: int = 0) -> Sample:
    """A model of the table, without touching the caller's random numbers."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return MODELS[name]()


def labels_for(sample: Sample) -> Tensor:
    return torch.arange(len(sample.inputs)) % sample.classes


def kept(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}
