"""Convolutions whose windows lie side by side are products of patches."""

import pytest
import torch
from torch import nn

from fedade import kernels
from fedade.models.patches import PatchProduct
from fedade.models.traced import fused_and_other_layers, traced

from .planned import assert_same_values_and_gradients

KNOWN = {
    "even": nn.Conv2d(3, 8, 4, 4),
    "odd, without bias": nn.Conv2d(4, 8, 3, 3, bias=False),
    "one row of pixels is left": nn.Conv2d(2, 4, 4, 4),
}
UNKNOWN = {
    "overlapping": nn.Conv2d(3, 8, 4, 2),
    "padded": nn.Conv2d(3, 8, 4, 4, padding=2),
    "grouped": nn.Conv2d(4, 8, 4, 4, groups=2),
    "oblong": nn.Conv2d(4, 8, (4, 2), (4, 2)),
    "six channels": nn.Conv2d(4, 6, 4, 4),
}


def tokens_of(conv: nn.Conv2d) -> nn.Module:
    """With a product of tokens after it, so that something is fused in any case."""
    return nn.Sequential(conv, nn.Flatten(2), nn.Linear(4, 4)).double().eval()


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("fused", [False, True])
def test_products_of_patches_are_convolutions(name, fused, monkeypatch):
    """As the module does it; and as patches for the kernels, which plain PyTorch multiplies here."""
    conv, pixels = KNOWN[name], 2 * KNOWN[name].kernel_size[0] + name.startswith("one row")
    module = tokens_of(conv)
    images = torch.randn(3, 2, conv.in_channels, pixels, pixels, dtype=torch.float64)
    plan, why = traced(module, images[0])
    assert plan is not None, why
    assert sum(isinstance(step, PatchProduct) for step in plan.steps) == 1
    for place in ("patches", "fused_steps"):
        monkeypatch.setattr(f"fedade.models.{place}.runs_fused", lambda _tensor: fused)
    assert_same_values_and_gradients(plan, module, images)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_convolutions_are_none(name):
    conv = UNKNOWN[name]
    module = nn.Sequential(conv, nn.Flatten(2), nn.LazyLinear(4)).eval()
    images = torch.randn(2, conv.in_channels, 8, 8)
    module(images)
    plan, why = traced(module, images)
    assert plan is None or not any(isinstance(step, PatchProduct) for step in plan.steps), why


def test_they_are_told_as_fused():
    body = tokens_of(nn.Conv2d(3, 8, 4, 4))
    body.plan, _ = traced(body, torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert fused_and_other_layers(body) == (["0", "2"], [])
    assert not kernels.packed_weights([torch.ones(4, 4, 1, 1)], torch.bfloat16)  # on a CPU nothing is prepared
