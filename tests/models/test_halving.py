"""Products in bf16: as `torch.autocast` has them, and under `vmap` too, which that passes by."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedade.models.fused_steps import ProductsInBf16
from fedade.models.splitting import bring

CLIENTS = 3
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # of attention under vmap, on a CPU


class Attending(nn.Module):
    """Patches, their attention, a perceptron: what vision transformers consist of."""

    def __init__(self, ready_made: bool) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True) if ready_made else nn.Linear(16, 48)
        self.perceptron = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).mT
        mixed = self.norm(tokens)
        if isinstance(self.attention, nn.MultiheadAttention):
            attended = self.attention(mixed, mixed, mixed, need_weights=False)[0]
        else:
            queries, keys, values = self.attention(mixed).chunk(3, -1)
            attended = (queries @ keys.mT / 4).softmax(-1) @ values
        tokens = tokens + attended
        return self.head((tokens + self.perceptron(tokens)).mean(1))


MODULES = {
    "transformer": lambda: Attending(ready_made=False),
    "ready-made attention": lambda: Attending(ready_made=True),
    "biased convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, groups=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(),
        nn.Linear(128, 5),
    ),
}  # fmt: skip


@pytest.fixture(params=MODULES)
def module(request):
    made = MODULES[request.param]().eval().requires_grad_(False)
    draws = torch.Generator().manual_seed(0)
    for value in made.parameters():
        value.add_(torch.rand(value.shape, generator=draws) - 0.5 - value)
        value.mul_(2 * max(1, value[0].numel()) ** -0.5)
    return made


@pytest.fixture
def of_clients(module):
    return {
        name: torch.stack([value * (1 + 0.1 * c) for c in range(CLIENTS)]) for name, value in module.named_parameters()
    }


IMAGES = torch.rand(CLIENTS, 4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def rounded(module, parameters, images):
    with ProductsInBf16():
        return functional_call(module, parameters, (images,)).float()


def test_it_rounds_as_autocast_does(module):
    with torch.autocast("cpu", torch.bfloat16):
        expected = module(IMAGES[0]).float()
    ours = rounded(module, dict(module.named_parameters()), IMAGES[0])
    exact = module(IMAGES[0])
    assert (ours - expected).abs().max() <= 0.03 * exact.abs().max()
    assert 0 < (ours - exact).abs().max() < 0.06 * exact.abs().max()


def test_clients_side_by_side_are_rounded_as_one_by_one(module, of_clients):
    together = vmap(lambda parameters, images: rounded(module, parameters, images))(of_clients, IMAGES)
    for client in range(CLIENTS):
        own = {name: value[client] for name, value in of_clients.items()}
        alone, exact = rounded(module, own, IMAGES[client]), functional_call(module, own, (IMAGES[client],))
        assert (together[client] - alone).abs().max() <= 0.03 * alone.abs().max()
        assert (together[client] - exact).abs().max() > 0, "nothing was rounded"


def test_gradients_are_float32_and_close(module, of_clients):
    def loss(parameters, images, run):
        return run(module, parameters, images).square().mean()

    ours, exact = (
        vmap(grad(lambda parameters, images, run=run: loss(parameters, images, run)))(of_clients, IMAGES)
        for run in (rounded, lambda module, parameters, images: functional_call(module, parameters, (images,)))
    )
    for name, value in ours.items():
        assert value.dtype is torch.float32
        assert (value - exact[name]).norm() < 0.1 * exact[name].norm() + 1e-4


def test_a_brought_network_takes_many_clients_in_bf16(module, of_clients):
    brought = bring(module, IMAGES[0], None)
    network = brought.network.computing_in("bf16")
    many = {name: torch.stack([value] * CLIENTS) for name, value in brought.parameters.items()}
    together = vmap(network.logits)(many, IMAGES)
    for client in range(CLIENTS):
        alone = network.logits(brought.parameters, IMAGES[client])
        assert (together[client] - alone).abs().max() <= 0.03 * alone.abs().max()
