"""Attention in one kernel is a softmax between two products, under every combination of `vmap` and `grad`."""

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from fedade import kernels
from fedade.core.seeds import Seeds
from fedade.kernels import HeadPlaces, Heads, reference

Function = Any


def randoms(*shape: int) -> Tensor:
    return torch.from_numpy(Seeds(0).generator("attention", size=sum(shape)).normal(size=shape)).float()


def together(heads: int, tokens: int, channels: int) -> Heads:
    """As a product for queries, keys and values leaves them: `[tokens, 3, heads, channels]`."""
    width = heads * channels
    places = (HeadPlaces(0, tokens * 3 * width, first * width, channels, 3 * width, 1) for first in range(3))
    return Heads(*places, heads, tokens, channels, 0.7 * channels**-0.5)


def apart(heads: int, tokens: int, channels: int) -> Heads:
    """Three sources, of which the keys lie turned, `[heads, channels, tokens]`."""
    size, width = heads * tokens * channels, heads * channels
    by_token = HeadPlaces(0, size, 0, channels, width, 1)
    turned, by_head = (
        HeadPlaces(1, size, 0, size // heads, 1, tokens),
        HeadPlaces(2, size, 0, size // heads, channels, 1),
    )
    return Heads(by_token, turned, by_head, heads, tokens, channels, 0.3)


def on_lanes(heads: Heads) -> Function:
    from fedade.kernels import attention_lanes

    return lambda *sources: attention_lanes.attention(heads, list(sources), "float32")


def by_hand(heads: Heads) -> Function:
    return lambda *sources: reference.attention(heads, sources)


def given_to(heads: Heads, *mapped: int, samples: int = 2) -> list[Tensor]:
    sizes = {places.source: places.size for places in heads.places}
    return [(1 + 0.1 * number) * randoms(*mapped, samples, size) for number, size in sorted(sizes.items())]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([together, apart]), st.integers(1, 3), st.integers(1, 20), st.integers(1, 18), st.integers(1, 2))
def test_values_and_gradients_of_clients(
    lanes: ModuleType, layout: Any, heads: int, tokens: int, channels: int, samples: int
) -> None:
    shape = layout(heads, tokens, channels)
    assert shape.covers()
    sources, direction = given_to(shape, 2, samples=samples), randoms(samples, heads, tokens, channels)

    def everything(function: Function) -> tuple[Tensor, ...]:
        def loss(*sources: Tensor) -> Tensor:
            return (function(*sources) * direction).sum()

        own = vmap(grad(loss, tuple(range(len(sources)))))(*sources)
        return vmap(function)(*sources), *own

    for found, expected in zip(everything(on_lanes(shape)), everything(by_hand(shape)), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("own", [(0, 0, 0), (0, None, 0), (None, None, 0)])
def test_transforms(lanes: ModuleType, own: tuple[int | None, ...]) -> None:
    shape = apart(2, 5, 4)
    sources = [many if dim == 0 else many[0] for many, dim in zip(given_to(shape, 3), own, strict=True)]

    def everything(function: Function) -> tuple[Tensor, ...]:
        def loss(*sources: Tensor) -> Tensor:
            return function(*sources).square().sum()

        def of_all(*sources: Tensor) -> Tensor:
            return vmap(loss, own)(*sources).sum()

        nested = vmap(vmap(grad(loss, (0, 1, 2)), own))(*(torch.stack([one, 2 * one]) for one in sources))
        return *vmap(grad(loss, (0, 1, 2)), own)(*sources), *grad(of_all, (0, 1, 2))(*sources), *nested

    for found, expected in zip(everything(on_lanes(shape)), everything(by_hand(shape)), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_products_of_lower_precision_have_a_softmax_in_float32(lanes: ModuleType) -> None:
    """Of float16: the interpreter multiplies no bf16."""
    shape = together(2, 17, 16)
    (source,) = given_to(shape)
    (found, of_source), (expected, exact) = (
        (function(given), grad(lambda given, of=function: of(given).float().square().sum())(given))
        for function, given in ((on_lanes(shape), source.half()), (by_hand(shape), source.double()))
    )
    assert found.dtype is of_source.dtype is torch.float16
    assert (found - expected).norm() < 0.01 * expected.norm()
    assert (of_source - exact).norm() < 0.02 * exact.norm()


def test_the_largest_head_and_one_token_more(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: True)
    for tokens, channels, dtype, fits in (
        (128, 64, torch.float16, True), (129, 64, torch.float16, False), (65, 64, torch.float32, False),
        (64, 65, torch.float32, False), (64, 64, torch.float64, False), (64, 64, torch.float32, True),
    ):  # fmt: skip
        shape = together(1, tokens, channels)
        (source,) = given_to(shape, samples=1)
        assert kernels.attends(shape, source.to(dtype)) is fits
        found, expected = kernels.attention(shape, [source.to(dtype)]), reference.attention(shape, [source.double()])
        torch.testing.assert_close(found.double(), expected, atol=0.03, rtol=0.03)


def test_what_is_read_twice_or_left_out_is_noticed() -> None:
    shape = together(2, 3, 4)
    places = shape.places
    assert not Heads(places[0], places[1], places[1], 2, 3, 4, 1.0).covers()
    assert not Heads(*places, 1, 3, 4, 1.0).covers()
