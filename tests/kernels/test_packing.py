"""Weights in another precision: right wherever they lie, one copy where they lie side by side, and no gradient lost."""

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from fedade.core.seeds import Seeds
from fedade.kernels import Layer
from fedade.kernels.packing import ALIGNED, packed_copies

CLIENTS = 3
LAYERS = (Layer(0, relu=False, gelu=True), Layer(1, relu=False, residual=0))
SHAPES = ((16, 8, 1, 1), (8, 16, 1, 1))


def randoms(*shape: int) -> Tensor:
    return torch.from_numpy(Seeds(0).generator("packing", size=sum(shape)).normal(size=shape)).float()


class Copies(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "copy" in func.overloadpacket.__name__:
            self.made.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def parts_of(vector: Tensor, sizes: list[int]) -> list[Tensor]:
    """As a client's parameters lie, `[lanes, 2, half]`."""
    return [part.unflatten(-1, (2, -1)) for part in torch.split(vector, sizes, -1)]


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["taken", "left out", "alone", "turned"])), max_size=6),
)
def test_copies_are_right_wherever_weights_lie(lanes: int, pieces: list[tuple[int, str]]) -> None:
    sizes = [2 * size for size, _ in pieces]
    parts = parts_of(randoms(lanes, sum(sizes)), sizes)
    kinds = {"alone": torch.clone, "turned": lambda part: part.clone().mT}
    laid = [kinds.get(how, lambda part: part)(part) for part, (_, how) in zip(parts, pieces, strict=True)]
    chosen = [part for part, (_, how) in zip(laid, pieces, strict=True) if how != "left out"]
    for copy, weight in zip(packed_copies(chosen, torch.bfloat16), chosen, strict=True):
        assert torch.equal(copy, weight.bfloat16())
        assert copy[0].is_contiguous()


def test_what_lies_side_by_side_is_one_copy() -> None:
    sizes = [4 * ALIGNED, ALIGNED, 2 * ALIGNED, 6]
    parts = parts_of(randoms(CLIENTS, sum(sizes)), sizes)
    with Copies() as copies:
        found = packed_copies(parts, torch.bfloat16)
    assert copies.made == ["copy_"]
    assert not any(weight.stride(0) % ALIGNED or weight.storage_offset() % ALIGNED for weight in found)
    with Copies() as copies:  # most of what lies between them is not asked for
        packed_copies(parts[1::2], torch.bfloat16)
    assert copies.made == ["_foreach_copy_"]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_chain_of_packed_weights_has_the_same_values_and_gradients(
    lanes: ModuleType, own: bool, dtype: torch.dtype
) -> None:
    mapped = (CLIENTS,) if own else ()
    weights, biases = [randoms(*mapped, *shape) for shape in SHAPES], [randoms(*mapped, shape[0]) for shape in SHAPES]
    images, dims = randoms(CLIENTS, 2, 8, 1, 3).to(dtype), (0 if own else None,) * 2

    def of(with_packed: bool) -> Any:
        def run(weights: list[Tensor], biases: list[Tensor], images: Tensor) -> Tensor:
            packed = lanes.packed_weights(weights, dtype) if with_packed else ()
            result: Tensor = lanes.fused_layers(LAYERS, [images], weights, biases, "float32", None, packed)
            return result.float().square().sum()

        with torch.no_grad():
            values = vmap(run, (*dims, 0))(weights, biases, images)
        return values, *vmap(grad(run, (0, 1)), (*dims, 0))(weights, biases, images)

    for one, other in zip(*(torch.utils._pytree.tree_leaves(of(packed)) for packed in (True, False)), strict=True):
        assert one.dtype is torch.float32
        assert torch.equal(one, other)
