"""Networks whose statistics depend on what they are shown run on the same convolutions: values as layer by layer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedade.core.normalisation import Mixed, PassContext, RecordingStatistics, Statistics, making_pass
from fedade.kernels import Affine, channel_moments, normalised, reference
from fedade.models import build
from fedade.models.image import Pixels
from fedade.models.traced import traced

from .test_traced import Classifier, Residual


def randoms(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def scaling(scale: Tensor, shift: Tensor) -> Affine:
    return Affine(scale, shift, torch.zeros_like(shift), torch.ones_like(scale), 0.0)


def plainly(name: str, parameters: dict[str, Tensor], images: Tensor, weight: float) -> Tensor:
    """The network by PyTorch's own layers and arithmetic."""
    from fedade.speed.plain_loop import PlainModel

    network = build(name, tuple(images.shape[1:]), 10, Pixels([0.5], [0.25]), 0)
    model = PlainModel(network).train()  # batch statistics are what PyTorch uses while training
    assert weight == 1
    return functional_call(model, {key: value.clone() for key, value in parameters.items()}, (images,))


@pytest.mark.parametrize("name", ["small-cnn", "resnet-3block"])
@pytest.mark.parametrize("gradients", [False, True])
def test_batch_statistics_are_those_of_pytorch(name: str, gradients: bool) -> None:
    images = randoms(6, 1, 16, 16) * 50 + 100
    network = build(name, (1, 16, 16), 10, Pixels([0.5], [0.25]), 0)
    parameters = network.initial_parameters()
    with torch.set_grad_enabled(gradients):
        ours = network.logits(parameters, images, Mixed(1.0))
        theirs = plainly(name, parameters, images, 1.0)
    torch.testing.assert_close(ours, theirs, atol=2e-4 * float(theirs.abs().max()), rtol=0)


def test_statistics_are_asked_for_in_the_order_of_plain_layers() -> None:
    """What a strategy finds in one layer may depend on those before."""
    recording = RecordingStatistics()
    network = build("resnet-3block", (1, 16, 16), 10, Pixels([0.5], [0.25]), 0)
    network.represent(network.initial_parameters(), randoms(2, 1, 16, 16), recording)
    block = [name.rpartition("4.")[2] for name in recording.seen if ".4." in name]
    assert block == ["norm1", "norm2", "shortcut.1"]


@pytest.mark.parametrize("shortcut", ["A", "B"])
def test_a_network_from_elsewhere_asks_in_the_order_of_its_own_code(shortcut: str) -> None:
    from fedade.models.batch_norm import convert_batch_norms, name_batch_norms

    module = convert_batch_norms(torch.nn.Sequential(Residual(8, 16, shortcut))).eval()
    name_batch_norms(module, "body")
    images = randoms(3, 8, 8, 8)
    plan, _ = traced(module, images)
    assert plan is not None
    asked, values = [], []
    for run in (lambda: module(images), lambda: plan.run(module, images)):
        recording = RecordingStatistics()
        with making_pass(PassContext(recording)), torch.no_grad():
            values.append(run())
        asked.append(list(recording.seen))
    assert asked[0] == asked[1]
    torch.testing.assert_close(values[0], values[1], atol=1e-4, rtol=1e-4)


def test_gradients_pass_through_statistics_of_a_network_from_elsewhere() -> None:
    from fedade.models.splitting import bring

    images = randoms(2, 4, 3, 8, 8)
    brought = bring(Classifier().eval(), images[0], None)

    def gradients(fused: bool) -> dict[str, Tensor]:
        network = brought.network
        plan = network.body.plan
        if not fused:
            object.__setattr__(network.body, "plan", None)
            network._bodies.idle.clear()
        try:
            loss: Callable[..., Tensor] = lambda own, batch: network.logits(own, batch, Mixed(0.5)).square().sum()  # noqa: E731
            found: dict[str, Tensor] = vmap(grad(loss), (None, 0))(brought.parameters, images)
            return found
        finally:
            object.__setattr__(network.body, "plan", plan)
            network._bodies.idle.clear()

    for one, other in zip(gradients(True).values(), gradients(False).values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()) + 1e-6, rtol=1e-3)


@pytest.mark.parametrize("channels", [3, 8, 16, 32, 48])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("apart", [(), (5,)], ids=["in common", "of each sample"])
def test_moments_and_scaling_are_plain_arithmetic(channels: int, mapped: bool, apart: tuple[int, ...]) -> None:
    images, residual = randoms(2, 5, channels, 8, 6) + 3, randoms(2, 5, channels, 8, 6, seed=1)
    scale, shift = randoms(2, *apart, channels, seed=2), randoms(2, *apart, channels, seed=3)

    def everything(images: Tensor, residual: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        return (
            channel_moments(images),
            normalised(images, scaling(scale, shift)),
            normalised(images, scaling(scale, shift), residual, relu=True),
        )

    def plain(images: Tensor, residual: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        moved = images * scale[..., None, None] + shift[..., None, None]
        moments = torch.stack([images.mean((2, 3)), images.square().mean((2, 3))])
        return moments, moved, (moved + residual).relu()

    given = images, residual, scale, shift
    with torch.no_grad():
        ours = vmap(everything)(*given) if mapped else everything(*(value[0] for value in given))
    theirs = vmap(plain)(*given) if mapped else plain(*(value[0] for value in given))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_scaling_asks_nothing_of_pytorch_that_some_versions_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11 takes no eps of 0; a trace that fails over it leaves a network on plain convolutions."""
    normalise, asked = torch.nn.functional.batch_norm, []

    def strict(*words: object, **more: object) -> Tensor:
        asked.append(words[7])
        assert float(words[7]) > 0
        return normalise(*words, **more)

    monkeypatch.setattr(torch.nn.functional, "batch_norm", strict)
    images, scale, shift = randoms(2, 5, 4, 4), randoms(5, seed=1), randoms(5, seed=2)
    with torch.no_grad():
        found = normalised(images, scaling(scale, shift))
    assert asked
    torch.testing.assert_close(found, images * scale[:, None, None] + shift[:, None, None])


def test_statistics_of_bf16_images_are_float32() -> None:
    images = (randoms(4, 8, 4, 4) * 100).bfloat16()
    assert reference.channel_moments(images).dtype is torch.float32
    found = Statistics(*reference.channel_moments(images).mean(1))
    torch.testing.assert_close(found.mean, images.float().mean((0, 2, 3)))
