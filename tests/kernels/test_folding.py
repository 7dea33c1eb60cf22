"""Chains of normalised layers: parameters of all layers are folded, and gradients unfolded, as plain PyTorch does layer
by layer, under every combination of `vmap` and `grad`."""

import math
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves

from fedade.kernels import Affine, Layer, reference

EPS = 1e-3
KINDS = ("plain", "biased", "normed", "both")
CLIENTS = 3
NORM = ("scale", "shift", "mean", "variance")

Parameters = dict[str, Tensor]
"""Of one layer, by name: its weight, and what it has of bias and normalisation."""


def drawn(kind: str, shape: tuple[int, ...], *lanes: int) -> Parameters:
    generator = torch.Generator().manual_seed(math.prod(shape))
    weight = torch.randn(*lanes, *shape, generator=generator) / math.prod(shape[1:]) ** 0.5
    names = ("bias",) * (kind in ("biased", "both")) + NORM * (kind in ("normed", "both"))
    others = {name: torch.randn(*lanes, shape[0], generator=generator) for name in names}
    if "variance" in others:
        others["variance"] = others["variance"].square() + 0.5
    return {"weight": weight} | others


def network(*kinds: str, lanes: tuple[int, ...] = ()) -> list[Parameters]:
    """One layer after the other."""
    sizes = (3, *(8,) * len(kinds))
    return [drawn(kind, (8, before, 3, 3), *lanes) for kind, before in zip(kinds, sizes, strict=False)]


def shown(*lanes: int) -> Tensor:
    return torch.randn(*lanes, 2, 3, 3, 4, generator=torch.Generator().manual_seed(1))


def affine(one: Parameters) -> Affine | None:
    return Affine(*(one[name] for name in NORM), EPS) if "scale" in one else None


def run(lanes: ModuleType | None, layers: list[Parameters], images: Tensor, stride: int = 1) -> Tensor:
    """By the kernels, or plainly."""
    chain = [Layer(place, stride, relu=place % 2 == 1) for place in range(len(layers))]
    weights, biases = [one["weight"] for one in layers], [one.get("bias") for one in layers]
    affines = [affine(one) for one in layers]
    if lanes is not None:
        found: Tensor = lanes.fused_layers(chain, [images], weights, biases, "float32", affines)
        return found
    both = list(map(reference.folded, weights, biases, affines))
    return reference.fused_layers(chain, [images], [weight for weight, _ in both], [bias for _, bias in both])


def gradients(lanes: ModuleType | None, layers: list[Parameters], images: Tensor, stride: int = 1) -> Any:
    """Of everything that there is: of statistics, too."""
    return grad(lambda layers: run(lanes, layers, images, stride).float().square().sum())(layers)


def assert_same(found: Any, expected: Any) -> None:
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_layers_with_and_without_bias_and_normalisation(lanes: ModuleType) -> None:
    layers, images = network(*KINDS), shown()
    assert_same(run(lanes, layers, images), run(None, layers, images))
    assert_same(gradients(lanes, layers, images), gradients(None, layers, images))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_more_layers_than_a_launch_takes(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    from fedade.kernels import folding_lanes

    launched, launch = [], folding_lanes.launch

    def counted(*words: Any) -> Any:
        launched.append(words)
        return launch(*words)

    monkeypatch.setattr(folding_lanes, "LAYERS_AT_ONCE", at_once)
    monkeypatch.setattr(folding_lanes, "launch", counted)
    layers, images = network("normed", "both", "normed"), shown()
    assert_same(gradients(lanes, layers, images), gradients(None, layers, images))
    assert len(launched) == 2 * math.ceil(3 / at_once)


@pytest.mark.parametrize("common", [(), ("mean", "variance"), ("scale", "bias"), ("weight", "bias", *NORM)])
def test_clients_with_parameters_of_their_own(lanes: ModuleType, common: tuple[str, ...]) -> None:
    alone, mapped = network("normed", "both"), network("normed", "both", lanes=(CLIENTS,))
    layers = [one | {name: own[name] for name in own if name not in common}
              for one, own in zip(alone, mapped, strict=True)]  # fmt: skip
    dims = [{name: None if name in common else 0 for name in one} for one in layers]

    def of(module: ModuleType | None) -> Any:
        return vmap(lambda layers, images: gradients(module, layers, images), (dims, 0))(layers, shown(CLIENTS))

    assert_same(of(lanes), of(None))


def test_parameters_that_lie_in_one_vector_per_client_of_several_federations(lanes: ModuleType) -> None:
    (like,) = network("normed")
    sizes = [value.numel() for value in like.values()]
    vectors = torch.rand(2, CLIENTS, 1 + sum(sizes), generator=torch.Generator().manual_seed(2)) + 0.1

    def of(module: ModuleType | None) -> Any:
        def loss(vector: Tensor, images: Tensor) -> Tensor:
            parts = zip(like.items(), torch.split(vector[1:], sizes), strict=True)
            return run(module, [{name: part.view(value.shape) for (name, value), part in parts}], images).square().sum()

        return vmap(vmap(grad(loss)))(vectors, shown(2, CLIENTS))

    assert_same(of(lanes), of(None))


def test_one_gradient_for_all_clients(lanes: ModuleType) -> None:
    def of(module: ModuleType | None) -> Any:
        def total(layers: list[Parameters]) -> Tensor:
            return vmap(lambda images: run(module, layers, images))(shown(CLIENTS)).square().sum()

        return grad(total)(network("both", "normed"))

    assert_same(of(lanes), of(None))


def test_parameters_stay_float32_beside_images_of_lower_precision(lanes: ModuleType) -> None:
    layers, images = network("normed", "both"), shown()
    found, exact = gradients(lanes, layers, images.half()), gradients(None, layers, images)
    for one, other in zip(tree_leaves(found), tree_leaves(exact), strict=True):
        assert one.dtype is torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_come_in_the_precision_of_the_images_with_zeros_for_missing_channels(
    lanes: ModuleType, dtype: torch.dtype
) -> None:
    from fedade.kernels.folding_lanes import LayerParameters, folded

    layers = network("normed", "both")
    own = [LayerParameters(*(one[name][None] if name in one else None for name in ("weight", "bias", *NORM)))
           for one in layers]  # fmt: skip
    for one, (packed, bias) in zip(layers, folded(own, [EPS, EPS], [4, 8], dtype), strict=True):
        weight, summand = reference.folded(one["weight"], one.get("bias"), affine(one))
        channels = weight.shape[1]
        assert packed.dtype is dtype
        torch.testing.assert_close(packed[0, ..., :channels].permute(0, 3, 1, 2), weight.to(dtype))
        assert not packed[..., channels:].any()
        torch.testing.assert_close(bias, summand[None])


def test_nothing_is_multiplied_for_layers_that_nobody_moves(lanes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedade.kernels import backward

    made, weight_gradient = [], backward.weight_gradient

    def counted(*words: Any) -> Any:
        made.append(words)
        return weight_gradient(*words)

    monkeypatch.setattr(backward, "weight_gradient", counted)
    *frozen, last = network("normed", "normed", "normed")

    def of(module: ModuleType | None) -> Any:
        return grad(lambda scale: run(module, [*frozen, last | {"scale": scale}], shown()).square().sum())(
            last["scale"]
        )

    assert_same(of(lanes), of(None))
    assert len(made) == 1


@pytest.mark.parametrize(("kind", "launches"), [("plain", 0), ("biased", 0), ("normed", 1), ("both", 1)])
def test_one_piece_of_a_product_is_its_gradient(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, launches: int
) -> None:
    from fedade.kernels import folding_lanes

    launched, launch = [], folding_lanes.launch

    def counted(kernel: Any, *words: Any) -> Any:
        launched.append(kernel)
        return launch(kernel, *words)

    monkeypatch.setattr(folding_lanes, "launch", counted)
    layers = [drawn(kind, (64, 8, 1, 1), CLIENTS)]
    images = torch.randn(CLIENTS, 2, 8, 1, 3, generator=torch.Generator().manual_seed(5)).half()

    def of(module: ModuleType | None) -> Any:
        given = images if module else images.float()
        return vmap(lambda layers, images: gradients(module, layers, images))(layers, given)

    for one, other in zip(tree_leaves(of(lanes)), tree_leaves(of(None)), strict=True):
        assert (one - other).norm() <= 0.01 * other.norm()
    assert launched.count(folding_lanes.unfold_kernel) == launches


@settings(deadline=None, max_examples=20)
@given(
    outputs=st.integers(1, 19),
    channels=st.integers(1, 9),
    size=st.sampled_from([1, 3, 5]),
    stride=st.integers(1, 2),
    image=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    kind=st.sampled_from(KINDS),
)
def test_any_shape(
    lanes: ModuleType, outputs: int, channels: int, size: int, stride: int, image: tuple[int, ...], kind: str
) -> None:
    layers = [drawn(kind, (outputs, channels, size, size))]
    images = torch.randn(image[0], channels, *image[1:], generator=torch.Generator().manual_seed(4))
    assert_same(gradients(lanes, layers, images, stride), gradients(None, layers, images, stride))
