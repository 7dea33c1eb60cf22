"""The kernels compute what the plain convolutions compute, alone and under every nesting of `vmap` and `grad`."""

import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves

from fedade.core.seeds import Seeds
from fedade.kernels import Layer, fused_layers, reference

Loss = Callable[[list[Tensor], list[Tensor], Tensor], Tensor]
CHAIN = (Layer(0), Layer(1, 2), Layer(1, 2, relu=False), Layer(2, residual=3))
"""A stem, and a residual block with a stride."""
KERNELS = ((2, 3, 3), (4, 2, 3), (4, 2, 1), (4, 4, 3))
"""Outputs, inputs and size of the chain's kernels."""
FEDERATIONS, CLIENTS = 2, 2


def randoms(*shape: int) -> Tensor:
    return torch.from_numpy(Seeds(0).generator("kernels", size=sum(shape)).normal(size=shape)).float()


def parameters(*mapped: int) -> tuple[list[Tensor], list[Tensor]]:
    weights = [randoms(*mapped, outputs, inputs, size, size) for outputs, inputs, size in KERNELS]
    return weights, [randoms(*mapped, outputs) for outputs, _, _ in KERNELS]


def images(*mapped: int) -> Tensor:
    return randoms(*mapped, 1, 3, 4, 4)


def assert_same(ours: Any, theirs: Any) -> None:
    for one, other in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "stride", "channels", "height", "width", "with_residual", "relu"),
    [
        (3, 1, 3, 4, 5, False, True),
        (3, 1, 8, 5, 4, True, False),
        (3, 2, 8, 5, 6, True, True),
        (3, 2, 8, 4, 4, False, False),
        (1, 2, 8, 5, 4, False, True),
        (1, 1, 8, 3, 3, True, True),
        (5, 1, 4, 4, 4, False, True),
    ],
)
def test_one_convolution_and_its_gradients(
    lanes: ModuleType, size: int, stride: int, channels: int, height: int, width: int, with_residual: bool, relu: bool
) -> None:
    outputs = 16
    layer = Layer(0, stride, residual=1 if with_residual else None, relu=relu)
    result = (2, outputs, -(-height // stride), -(-width // stride))
    inputs = [randoms(2, channels, height, width)] + ([randoms(*result)] if with_residual else [])
    weights, bias, direction = randoms(outputs, channels, size, size), randoms(outputs), randoms(*result)

    def of(layers: Callable[..., Tensor]) -> Any:
        def along(inputs: list[Tensor], weights: Tensor, bias: Tensor) -> Tensor:
            return (layers([layer], inputs, [weights], [bias]) * direction).sum()

        return layers([layer], inputs, [weights], [bias]), grad(along, (0, 1, 2))(inputs, weights, bias)

    assert_same(of(fused(lanes)), of(reference.fused_layers))


def fused(lanes: ModuleType) -> Callable[..., Tensor]:
    def layers(chain: Sequence[Layer], inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        result: Tensor = lanes.fused_layers(chain, inputs, weights, biases, "float32")
        return result

    return layers


def gradient(loss: Loss) -> Callable[..., Any]:
    return grad(loss, (0, 1, 2))


TRANSFORMS: dict[str, Callable[[Loss], Any]] = {
    "one client": lambda loss: gradient(loss)(*parameters(), images()),
    "every client its own": lambda loss: vmap(gradient(loss))(*parameters(CLIENTS), images(CLIENTS)),
    "several federations": lambda loss: vmap(vmap(gradient(loss)))(
        *parameters(FEDERATIONS, CLIENTS), images(FEDERATIONS, CLIENTS)
    ),
    "weights shared in each federation": lambda loss: vmap(vmap(gradient(loss), (None, None, 0)))(
        *parameters(FEDERATIONS), images(FEDERATIONS, CLIENTS)
    ),
    "images shared by clients": lambda loss: vmap(gradient(loss), (0, 0, None))(*parameters(CLIENTS), images()),
    "weights of clients, images of federations": lambda loss: vmap(vmap(gradient(loss), (0, 0, None)), (None, None, 0))(
        *parameters(CLIENTS), images(FEDERATIONS)
    ),
    "one gradient for all clients": lambda loss: gradient(
        lambda weights, biases, images: vmap(loss, (None, None, 0))(weights, biases, images).sum()
    )(*parameters(), images(CLIENTS)),
    "one gradient for shared images": lambda loss: gradient(
        lambda weights, biases, images: vmap(loss, (0, 0, None))(weights, biases, images).sum()
    )(*parameters(CLIENTS), images()),
    "only the last layer moves": lambda loss: vmap(
        grad(lambda last, weights, biases, images: loss([*weights[:-1], last], biases, images)), (0, None, None, 0)
    )(randoms(CLIENTS, 4, 4, 3, 3), *parameters(), images(CLIENTS)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_chain_under_transforms(lanes: ModuleType, name: str) -> None:
    def loss(layers: Callable[..., Tensor]) -> Loss:
        return lambda weights, biases, images: layers(CHAIN, [images], weights, biases).square().sum()

    assert_same(TRANSFORMS[name](loss(fused(lanes))), TRANSFORMS[name](loss(reference.fused_layers)))


def test_the_gradient_of_a_mean_over_the_image_plane_has_one_number_for_all_pixels(lanes: ModuleType) -> None:
    def gradients(layers: Callable[..., Tensor]) -> Any:
        def loss(weights: list[Tensor], biases: list[Tensor], images: Tensor) -> Tensor:
            return layers(CHAIN, [images], weights, biases).mean((2, 3)).square().sum()

        return vmap(gradient(loss))(*parameters(CLIENTS), images(CLIENTS))

    assert_same(gradients(fused(lanes)), gradients(reference.fused_layers))


def test_parameters_stay_float32_beside_images_of_lower_precision(lanes: ModuleType) -> None:
    def loss(layers: Callable[..., Tensor]) -> Loss:
        return lambda weights, biases, images: layers(CHAIN, [images], weights, biases).float().square().sum()

    *ours, of_images = gradient(loss(fused(lanes)))(*parameters(), images().half())
    assert of_images.dtype == torch.float16
    exact = gradient(loss(reference.fused_layers))(*parameters(), images())
    for one, other in zip(tree_leaves(ours), tree_leaves(exact[:2]), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.01 * other.norm()


def test_a_layer_that_nobody_uses_is_refused(lanes: ModuleType) -> None:
    weights, biases = parameters()
    with pytest.raises(ValueError, match="layer 0 of 2 is used by no later layer"):
        fused(lanes)((Layer(0), Layer(0)), [images()], weights[:1] * 2, biases[:1] * 2)


def test_second_derivatives_are_refused(lanes: ModuleType) -> None:
    weights, biases = parameters()

    def slope(scale: Tensor) -> Tensor:
        of_scale: Tensor = grad(lambda s: fused(lanes)(CHAIN, [s * images()], weights, biases).square().sum())(scale)
        return of_scale

    with pytest.raises(NotImplementedError, match="second derivative"):
        grad(slope)(torch.tensor(1.0))


def test_where_the_kernels_cannot_work_plain_pytorch_does() -> None:
    weights, bias = randoms(2, 3, 3, 3), randoms(2)
    expected = torch.nn.functional.conv2d(images(), weights, bias, padding=1).relu()
    torch.testing.assert_close(fused_layers([Layer(0)], [images()], [weights], [bias]), expected)


@pytest.mark.parametrize("mapped", [(None, 0), (0, 0), (0, None)])
def test_a_convolution_may_have_no_bias(lanes: ModuleType, mapped: tuple[int | None, int | None]) -> None:
    weights, shown = randoms(2, 8, 3, 3, 3), randoms(2, 4, 3, 5, 5)
    given = [value if own == 0 else value[0] for value, own in zip((weights, shown), mapped, strict=True)]

    def ours(weight: Tensor, images: Tensor) -> Tensor:
        result: Tensor = lanes.fused_layers([Layer(0, relu=False)], [images], [weight], [None], "float32")
        return result

    with torch.no_grad():
        found = vmap(ours, mapped)(*given)
    assert_same(found, vmap(lambda weight, images: torch.conv2d(images, weight, padding=1), mapped)(*given))


@pytest.mark.parametrize("dims", [None, (0, 0, 0), (None, None, 0), (0, 0, None)])
def test_without_gradients_nothing_but_the_result_is_held(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, dims: tuple[int | None, ...] | None
) -> None:
    made: list[weakref.ref[Tensor]] = []
    convolve = lanes.convolve

    def watched(*words: Any) -> Tensor:
        alive = sum(one() is not None for one in made)
        assert alive <= 2  # what the next layer reads, and what is added to it
        result: Tensor = convolve(*words)
        made.append(weakref.ref(result))
        return result

    def of(layers: Callable[..., Tensor]) -> Tensor:
        def one(weights: list[Tensor], biases: list[Tensor], images: Tensor) -> Tensor:
            return layers(CHAIN, [images], weights, biases)

        if dims is None:
            return one(*parameters(), images())
        weights, biases = parameters() if dims[0] is None else parameters(CLIENTS)
        result: Tensor = vmap(one, dims)(weights, biases, images() if dims[2] is None else images(CLIENTS))
        return result

    monkeypatch.setattr(lanes, "convolve", watched)
    with torch.no_grad():
        found, expected = of(fused(lanes)), of(reference.fused_layers)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert len(made) == len(CHAIN)


GELUS = {
    "one": ((Layer(0, relu=False, gelu=True),), ((8, 4, 1),)),
    "between": ((Layer(0, relu=False, gelu=True), Layer(1, relu=False, residual=0)), ((8, 4, 1), (4, 8, 1))),
    "read twice": (
        (Layer(0, relu=False, gelu=True), Layer(1, residual=1), Layer(2, relu=False, residual=1, gelu=True)),
        ((4, 4, 3), (4, 4, 1), (4, 4, 3)),
    ),
    "after a stride": ((Layer(0, 2, relu=False, gelu=True), Layer(1, relu=False)), ((8, 4, 3), (4, 8, 1))),
}


@pytest.mark.parametrize("name", GELUS)
@pytest.mark.parametrize("dims", [(0, 0, 0), (None, None, 0), (0, 0, None)])
def test_gelus_are_part_of_the_product(lanes: ModuleType, name: str, dims: tuple[int | None, ...]) -> None:
    chain, shapes = GELUS[name]
    own = () if dims[0] is None else (CLIENTS,)
    weights = [randoms(*own, outputs, inputs, size, size) / (2 * size) for outputs, inputs, size in shapes]
    biases = [randoms(*own, outputs) for outputs, _, _ in shapes]
    shown = randoms(*(() if dims[2] is None else (CLIENTS,)), 2, 4, 3, 4)

    def of(layers: Callable[..., Tensor]) -> Any:
        def loss(weights: list[Tensor], biases: list[Tensor], images: Tensor) -> Tensor:
            return layers(chain, [images], weights, biases).square().sum()

        with torch.no_grad():
            values = vmap(lambda *given: layers(chain, [given[2]], *given[:2]), dims)(weights, biases, shown)
        return values, vmap(gradient(loss), dims)(weights, biases, shown)

    assert_same(of(fused(lanes)), of(reference.fused_layers))


@settings(deadline=None)
@given(
    groups=st.sampled_from([1, 2, 4]),
    dilation=st.integers(1, 3),
    size=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 2),
    each=st.integers(1, 3),
    plane=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_groups_and_dilation_can_be_written_as_zeros(
    groups: int, dilation: int, size: int, stride: int, each: int, plane: tuple[int, int]
) -> None:
    layer = Layer(0, stride, relu=False, groups=groups, dilation=dilation)
    images, weights = randoms(2, groups * each, *plane).double(), randoms(4 * groups, each, size, size).double()
    dense = reference.dense_weights(weights, layer)
    assert dense.shape == (4 * groups, groups * each, dilation * (size - 1) + 1, dilation * (size - 1) + 1)
    written = reference.convolution(images, dense, Layer(0, stride))
    torch.testing.assert_close(written, reference.convolution(images, weights, layer))


@pytest.mark.parametrize(("groups", "dilation"), [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_grouped_and_dilated_convolutions_of_clients(lanes: ModuleType, groups: int, dilation: int) -> None:
    layer = Layer(0, groups=groups, dilation=dilation)
    weights, biases = randoms(CLIENTS, 8, 8 // groups, 3, 3), randoms(CLIENTS, 8)

    def gradients(layers: Callable[..., Tensor]) -> Any:
        def loss(weights: Tensor, bias: Tensor, images: Tensor) -> Tensor:
            return layers([layer], [images], [weights], [bias]).square().sum()

        return vmap(grad(loss, (0, 1, 2)))(weights, biases, randoms(CLIENTS, 1, 8, 4, 5))

    assert_same(gradients(fused(lanes)), gradients(reference.fused_layers))


@pytest.mark.parametrize(("samples", "dtype"), [(1, torch.float16), (150, torch.float16), (150, torch.float32)])
def test_gradients_of_1x1_convolutions_in_one_split_or_several(
    lanes: ModuleType, samples: int, dtype: torch.dtype
) -> None:
    layer, weights, biases = Layer(0, relu=False), randoms(CLIENTS, 64, 8, 1, 1), randoms(CLIENTS, 64)
    shown = randoms(CLIENTS, samples, 8, 1, 3)

    def gradients(layers: Callable[..., Tensor], images: Tensor) -> Any:
        def loss(weights: Tensor, bias: Tensor, images: Tensor) -> Tensor:
            return layers([layer], [images], [weights], [bias]).float().square().mean()

        return vmap(grad(loss, (0, 1)))(weights, biases, images)

    found, expected = gradients(fused(lanes), shown.to(dtype)), gradients(reference.fused_layers, shown)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        assert (one - other).norm() < 2e-3 * other.norm()
