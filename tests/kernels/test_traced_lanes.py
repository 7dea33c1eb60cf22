"""Networks on a GPU's kernels, interpreted: values and gradients of clients with their own weights."""

from dataclasses import dataclass, field
from types import ModuleType

import pytest
import torch
from speed.networks import TransformerBlock
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedade import kernels
from fedade.core.normalisation import (
    BySampleMoments,
    Mixed,
    PassContext,
    SampleMoments,
    Statistics,
    batch_statistics,
    making_pass,
)
from fedade.kernels.native import chain
from fedade.models.batch_norm import convert_batch_norms, name_batch_norms
from fedade.models.image import BasicBlock, GlobalAverage
from fedade.models.traced import TracedBody, TracedPass, fused_and_other_layers

from ..models.test_traced import Residual

CLIENTS = 2


class Body(nn.Module):
    """16 to 32 channels, as the first and second stage of a ResNet for CIFAR."""

    def __init__(self, shortcut: str) -> None:
        super().__init__()
        self.one, self.two = Residual(16, 16, shortcut), Residual(16, 32, shortcut)

    def forward(self, images: Tensor) -> Tensor:
        return self.two(self.one(images)).mean((2, 3))


@pytest.fixture
def on_lanes(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU would run."""
    monkeypatch.setattr(kernels, "_runs_triton", lambda tensor: tensor.dtype is not torch.uint8)
    monkeypatch.setattr(chain, "suits", lambda *_: False)
    monkeypatch.setattr(chain, "suits_images", lambda *_: False)


class Tokens(nn.Module):
    """Patches, a transformer's block, and a product with a relu."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.block, self.last = nn.Conv2d(16, 16, 2, 2), TransformerBlock(16, 2), nn.Linear(16, 8)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.last(self.block(self.patches(images).flatten(2).mT))).mean(1)


def material(kind: str) -> tuple[TracedBody, dict[str, Tensor], Tensor]:
    ours = nn.Sequential(BasicBlock(16, 16), BasicBlock(16, 32, stride=2), GlobalAverage())
    inner = ours if kind == "ours" else Tokens() if kind == "tokens" else convert_batch_norms(Body(kind))
    body = TracedBody(nn.Identity(), inner).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in body.parameters():
            drawn = torch.randn(value.shape, generator=generator)
            value.copy_(drawn * value[0].numel() ** -0.5 if value.ndim > 1 else 1 + 0.1 * drawn)
    name_batch_norms(body, "body")
    images = torch.randn(CLIENTS, 1, 16, 4, 4, generator=generator)
    body.trace(images[0])
    assert isinstance(body.plan, TracedPass)
    if kind == "tokens":
        assert fused_and_other_layers(body)[1] == []
    own = {
        name: value.detach() * torch.tensor([1.0, 1.1]).view(-1, *[1] * value.ndim)
        for name, value in body.named_parameters()
    }
    return body, own, images


@pytest.mark.parametrize(
    ("shortcut", "shared"),
    [("A", False), ("ours", False), ("tokens", False), ("B", True)]
    + [pytest.param(*rest, marks=pytest.mark.slow) for rest in (("B", False), ("tokens", True))],
)
def test_gradients_of_clients(on_lanes: None, shortcut: str, shared: bool) -> None:
    """Of weights of their own, or of shared ones, as before a round's first step."""
    body, own, images = material(shortcut)
    weights = {name: value[0] for name, value in own.items()} if shared else own

    def gradients(plan: TracedPass | None) -> dict[str, Tensor]:
        body.plan = plan
        loss = lambda weights, batch: functional_call(body, weights, (batch,)).square().sum()  # noqa: E731
        found: dict[str, Tensor] = vmap(grad(loss), (None if shared else 0, 0))(weights, images)
        return found

    expected = gradients(None)
    found = gradients(material(shortcut)[0].plan)
    for name, exact in expected.items():
        torch.testing.assert_close(found[name], exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()), msg=name)


@pytest.mark.parametrize("shortcut", ["A", "B", "ours"])
def test_values_under_statistics_that_follow_the_batch(on_lanes: None, shortcut: str) -> None:
    body, own, images = material(shortcut)

    def values(plan: TracedPass | None) -> Tensor:
        body.plan = plan
        with making_pass(PassContext(Mixed(0.7))), torch.no_grad():
            result: Tensor = vmap(lambda weights, batch: functional_call(body, weights, (batch,)))(own, images)
        return result

    expected, found = values(None), values(material(shortcut)[0].plan)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@dataclass(frozen=True)
class BatchIn(BySampleMoments):
    """The batch's statistics in some layers."""

    layers: frozenset[str]
    asked: list[str] = field(default_factory=list)

    def looks_at(self, layer: str) -> bool:
        return layer in self.layers

    def statistics(self, layer: str, inputs: Tensor | SampleMoments, deployed: Statistics) -> Statistics:
        self.asked.append(layer)
        if not isinstance(inputs, SampleMoments):
            return batch_statistics(inputs) if self.looks_at(layer) else deployed
        mean, square = inputs.values.mean(1)
        return Statistics(mean, square - mean.square())


@pytest.mark.parametrize(
    ("shortcut", "places"), [("A", (0,)), ("B", ()), ("B", (1, 2)), ("ours", (-1,)), ("ours", (-2, 0))]
)
def test_layers_that_nobody_looks_at_are_fused(on_lanes: None, shortcut: str, places: tuple[int, ...]) -> None:
    body, own, images = material(shortcut)

    def values(plan: TracedPass | None, looked_at: frozenset[str]) -> tuple[Tensor, list[str]]:
        body.plan = plan
        strategy = BatchIn(looked_at)
        with making_pass(PassContext(strategy)), torch.no_grad():
            return vmap(lambda weights, batch: functional_call(body, weights, (batch,)))(own, images), strategy.asked

    plan, (_, names) = body.plan, values(None, frozenset())
    looked_at = frozenset(names[place] for place in places)
    (found, asked), (expected, _) = values(plan, looked_at), values(None, looked_at)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert sorted(asked) == sorted(looked_at)
