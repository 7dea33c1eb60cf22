"""Networks from elsewhere on the fused convolutions: the same values and gradients, whatever they are made of."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from speed.networks import Block
from torch import Tensor, nn

from fedade.core.normalisation import Mixed
from fedade.models import build
from fedade.models.batch_norm import convert_batch_norms
from fedade.models.image import Pixels
from fedade.models.splitting import bring
from fedade.models.traced import TracedPass, traced

from .planned import assert_same_values_and_gradients


def conv(inputs: int, outputs: int, size: int = 3, **options: object) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=options.pop("padding", size // 2), bias=False, **options)


class Residual(nn.Module):
    """He et al.'s block; where its shape changes, the shortcut has parameters (B) or none (A)."""

    def __init__(self, inputs: int, outputs: int, shortcut: str = "A") -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.conv1, self.bn1 = conv(inputs, outputs, stride=self.stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.padding = (outputs - inputs) // 2
        self.down = (
            nn.Sequential(conv(inputs, outputs, 1, stride=2), nn.BatchNorm2d(outputs)) if shortcut == "B" else None
        )

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(images)))))
        if self.stride == 2 and self.down is not None:
            images = self.down(images)
        elif self.stride == 2:
            images = F.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding), "constant", 0)
        hidden += images
        return F.relu(hidden)


class PreActivated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.conv1, self.bn2, self.conv2 = nn.BatchNorm2d(8), conv(8, 8), nn.BatchNorm2d(8), conv(8, 8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv2(self.relu(self.bn2(self.conv1(self.relu(self.bn1(images)))))) + images


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = conv(8, 4), conv(12, 4), conv(4, 4)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        first = self.norm(self.one(images)).relu()
        second = self.two(torch.cat([images, first], 1))
        return torch.cat([self.three(second) + first, second], 1)


class ChangedLater(nn.Module):
    """What the convolution read is changed in place after it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv(8, 8)

    def forward(self, images: Tensor) -> Tensor:
        copied = images * 2
        return self.conv(copied) - copied.mul_(3)


class ChangedBeforeTheSum(ChangedLater):
    """As above, and the convolution could wait for what it is added to."""

    def forward(self, images: Tensor) -> Tensor:
        copied = images * 2
        return self.conv(copied) + copied.mul_(3)


class ByValue(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images * 2 if images.sum() > 0 else images


class ByKind(nn.Module):
    """Takes another way for a stand-in than for a tensor, which a trace cannot see."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv(8, 8)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images) if images.dtype is torch.float64 else images


def normalised() -> list[nn.Module]:
    return [conv(8, 8), nn.BatchNorm2d(8), nn.ReLU()]


NETWORKS = {
    "residual": (nn.Sequential(*normalised(), Residual(8, 8), Residual(8, 16)), [6]),
    "projected": (nn.Sequential(*normalised(), Residual(8, 8), Residual(8, 16, "B")), [6]),
    "pre-activated": (nn.Sequential(PreActivated(), PreActivated()), [2, 2]),
    "dense": (Dense(), [1, 1, 1]),
    "biased": (nn.Sequential(nn.Conv2d(8, 4, 5, 2, 2), nn.BatchNorm2d(4), nn.Conv2d(4, 8, 1), nn.SiLU()), [2]),
    "half known": (nn.Sequential(conv(8, 8), conv(8, 8, groups=8), conv(8, 8, 7), nn.ReLU6()), [1, 1]),
    "grouped": (nn.Sequential(conv(8, 8, groups=2), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 4, 1, groups=4)), [2]),
    "dilated": (
        nn.Sequential(
            conv(8, 8, dilation=2, padding=2), nn.BatchNorm2d(8), conv(8, 8, dilation=3, padding=3, groups=4, stride=2)
        ),
        [2],
    ),
    "six channels between": (nn.Sequential(conv(8, 6), nn.BatchNorm2d(6), conv(6, 8)), [1]),
}


class Tokens(nn.Module):
    """Products of tokens between convolutions, one of them read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = conv(8, 12), nn.LayerNorm(12)
        self.one, self.two, self.three = nn.Linear(12, 16), nn.Linear(16, 8, bias=False), nn.Linear(12, 8)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.conv(images).flatten(2).mT)
        return torch.relu(self.two(F.relu(self.one(tokens)))) + self.three(tokens)


class Perceptrons(nn.Module):
    """As in transformers; the second has a gelu of another form."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 8)
        self.three, self.four, self.drop = nn.Linear(8, 12), nn.Linear(12, 8), nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = images.flatten(2).mT
        tokens = tokens + self.drop(self.two(self.drop(F.gelu(self.one(tokens)))))
        return self.four(F.gelu(self.three(tokens), approximate="tanh")) + tokens


class WrittenLater(nn.Module):
    """What was padded by nothing is a copy, of which one is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv(8, 8)

    def forward(self, images: Tensor) -> Tensor:
        copied = F.pad(images, (0, 0, 0, 0))
        copied *= 2
        return self.conv(images) + copied


NETWORKS["padded by nothing"] = (nn.Sequential(Block(8, 8), nn.Identity(), Block(8, 16), Block(16, 16)), [2 + 3 + 2])
NETWORKS["written later"] = (WrittenLater(), [1])
NETWORKS["tokens"] = (Tokens(), [1, 3])
NETWORKS["perceptrons"] = (Perceptrons(), [2, 1, 1])
UNKNOWN = {
    "depthwise": conv(8, 8, groups=8),
    "dilated widely": conv(8, 8, dilation=4, padding=4),
    "even": nn.Conv2d(8, 8, 2),
    "without padding": conv(8, 8, padding=0),
    "oblong": nn.Conv2d(8, 8, (3, 1), padding=(1, 0)),
    "by value": ByValue(),
    "by kind": ByKind(),
    "attention": nn.Sequential(nn.Flatten(2), nn.MultiheadAttention(49, 7)),
    "linear": nn.Sequential(nn.Flatten(), nn.Linear(392, 4)),
}


def prepared(module: nn.Module) -> nn.Module:
    """With statistics and weights that are not those of a fresh layer, in double precision."""
    with torch.no_grad():
        module(torch.randn(16, 8, 7, 7))
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return convert_batch_norms(module).double().eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_layers_have_the_values_and_gradients_of_the_module(name):
    module, chains = NETWORKS[name]
    module = prepared(module)
    inputs = torch.randn(3, 2, 8, 7, 7, dtype=torch.float64)
    plan, _ = traced(module, inputs[0])
    assert [len(step.layers) for step in plan.steps if hasattr(step, "layers")] == chains
    assert_same_values_and_gradients(plan, module, inputs)


@pytest.mark.parametrize("kind", [ChangedLater, ChangedBeforeTheSum])
def test_nothing_is_put_off_beyond_a_change_in_place(kind):
    module, inputs = kind().double().eval(), torch.randn(2, 8, 7, 7, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(traced(module, inputs)[0].run(module, inputs), module(inputs))


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_has_no_plan(name):
    module = UNKNOWN[name].double().eval()
    plan, why = traced(module, torch.randn(2, 8, 7, 7, dtype=torch.float64))
    assert plan is None
    assert why


class Classifier(nn.Module):
    def __init__(self, num_classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 8), Residual(8, 16, "B"))
        self.top = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.top(F.adaptive_avg_pool2d(self.body(images), 1).flatten(1))


def test_a_brought_network_runs_fused_whatever_its_statistics(monkeypatch):
    model = Classifier()
    with torch.no_grad():
        model(torch.rand(32, 3, 8, 8))
    model.eval()
    images = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
    brought = bring(model, images, None, unit_pixels=True)
    assert len(brought.network.body.plan.fused_modules()) == len(["stem", "bn", "relu"]) + 4 + 6
    expected = model(images.float() / 255).detach()
    torch.testing.assert_close(brought.network.logits(brought.parameters, images), expected, rtol=0, atol=1e-5)
    ran, run = [], TracedPass.run
    monkeypatch.setattr(TracedPass, "run", lambda *given: ran.append(given) or run(*given))
    brought.network.logits(brought.parameters, images)
    brought.network.logits(brought.parameters, images, Mixed(1.0))
    assert len(ran) == 2


@pytest.mark.parametrize("module", [Classifier(), nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Linear(16, 5))])
def test_networks_from_elsewhere_multiply_in_bf16(module):
    images = torch.rand(6, 3, 8, 8)
    brought = bring(module.eval(), images, None)
    exact, rounded = (
        network.represent(brought.parameters, images)
        for network in (brought.network, brought.network.computing_in("bf16"))
    )
    assert rounded.dtype is torch.float32
    assert 0 < (rounded - exact).abs().max() < 0.05 * exact.abs().max()


def test_a_network_that_is_trained_here_is_traced_too():
    network = build(f"import:{__name__}:Classifier", (3, 8, 8), 5, Pixels([0.5] * 3, [0.25] * 3), 0)
    assert network.body.plan.fused_modules()[0] == "body.0"
    assert {name.partition(".")[0] for name in network.initial_parameters()} == {"body", "head"}


class Looping(Classifier):
    """How often it loops depends on what it is given."""

    def forward(self, inputs: Tensor) -> Tensor:
        for _ in range(inputs.dim() - 3):
            inputs = inputs.relu()
        return super().forward(inputs)


def test_a_network_that_cannot_be_traced_says_why():
    network = build(f"import:{__name__}:Looping", (3, 8, 8), 5, Pixels([0.5] * 3, [0.25] * 3), 0)
    assert network.body.plan is None
    assert network.body.not_traced.startswith("its pass cannot be traced: TypeError")
