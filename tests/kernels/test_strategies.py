"""Every strategy that looks at moments chooses the same statistics, with the same gradients, whether kernels tell it
these or plain PyTorch does."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedade import kernels
from fedade.core.normalisation import (
    ByMoments,
    Mixed,
    Normalisation,
    PassContext,
    RecordingStatistics,
    Statistics,
    making_pass,
)
from fedade.kernels import reference
from fedade.kernels.layer import Layer
from fedade.kernels.native import chain
from fedade.methods.hybrid_ttn import NearestChannels
from fedade.methods.unitta import DomainBalanced, WatchingLayer
from fedade.models import fused_steps
from fedade.parts.running_norms import ClassBalanced, ClassRows, Following, InstanceAware, Renormalised, RowPace

from .test_traced_lanes import material

SAMPLES, CLASSES = 3, 4
LABELS = torch.tensor([0, 2, 0])
WIDTHS = {
    f"body.{layer}": width
    for layer, width in {
        "1.0.norm1": 16, "1.0.norm2": 16, "1.1.norm1": 32, "1.1.norm2": 32, "1.1.shortcut.1": 32,
    }.items()
}  # fmt: skip
KNOWN = {layer: Statistics(torch.full((width,), 0.1), torch.full((width,), 1.2)) for layer, width in WIDTHS.items()}
PACE = RowPace(0.2, 0.1)


def rows(*leading: int) -> dict[str, ClassRows]:
    means = torch.linspace(-1, 1, leading[-1])[:, None]
    return {
        layer: ClassRows(means.expand(*leading, width), torch.ones(*leading, width)) for layer, width in WIDTHS.items()
    }


STRATEGIES: dict[str, Callable[[], Normalisation]] = {
    "batch": Mixed,
    "mixed": lambda: Mixed(0.7),
    "recording": RecordingStatistics,
    "recording only": lambda: RecordingStatistics(applies=False),
    "following": lambda: Following(0.3, torch.tensor([1.0, 0.0, 0.5])),
    "samples around the deployed": lambda: InstanceAware(0.5),
    "samples around the batch": lambda: InstanceAware(0.5, of_batch=True),
    "renormalised": lambda: Renormalised(KNOWN, torch.tensor(False)),
    "balanced": lambda: ClassBalanced(rows(CLASSES), PACE, LABELS),
    "of domains": lambda: DomainBalanced(rows(2, CLASSES), LABELS, torch.tensor([0, 1, 1]), RowPace(0.2, 0.0)),
    "watching": lambda: WatchingLayer(ClassBalanced(rows(CLASSES), PACE, LABELS), "body.1.0.norm2"),
    "nearest": lambda: NearestChannels(dict.fromkeys(WIDTHS, 8)),
}


def plain_convolution(images: Tensor, weights: Tensor, stride: int, tf32: bool, groups: int, dilation: int) -> Tensor:
    return reference.convolution(images, weights, Layer(0, stride, relu=False, groups=groups, dilation=dilation))


def test_none_is_left_out() -> None:
    known = {strategy for strategy in ByMoments.__subclasses__() if strategy.__module__.startswith("fedade")}
    assert known == {type(make()) for make in STRATEGIES.values()}


@pytest.mark.parametrize("name", STRATEGIES)
def test_kernels_tell_strategies_what_plain_arithmetic_does(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body, own, _ = material("ours")
    images = torch.randn(2, SAMPLES, 16, 4, 4, generator=torch.Generator().manual_seed(1))
    direction = torch.randn(SAMPLES, 32, generator=torch.Generator().manual_seed(2))

    def loss(weights: dict[str, Tensor], batch: Tensor) -> tuple[Tensor, Tensor]:
        with making_pass(PassContext(STRATEGIES[name]())):
            result = functional_call(body, weights, (batch,))
        return (result * direction).sum(), result

    plain = vmap(grad(loss, has_aux=True))(own, images)
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: True)
    monkeypatch.setattr(fused_steps, "convolved", plain_convolution)  # interpreted it takes most of the time
    monkeypatch.setattr(chain, "suits_images", lambda *_: False)
    fused = vmap(grad(loss, has_aux=True))(own, images)
    torch.testing.assert_close(fused[1], plain[1], rtol=1e-3, atol=1e-4)
    for parameter, exact in plain[0].items():
        size = float(exact.abs().max())
        torch.testing.assert_close(fused[0][parameter], exact, rtol=2e-3, atol=1e-3 * size, msg=parameter)
    with torch.no_grad(), making_pass(PassContext(STRATEGIES[name]())):
        found = vmap(lambda weights, batch: functional_call(body, weights, (batch,)))(own, images)
    torch.testing.assert_close(found, plain[1], rtol=1e-3, atol=1e-4)
