import pytest
import torch
from torch.func import vmap

from fedade.core.split import Layout, average, weighted_mean


def tensors(lanes: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (2, 3), "b": (), "c": (4,)}
    return {name: torch.randn((*lanes, *shape), generator=generator) for name, shape in shapes.items()}


def test_what_is_joined_comes_apart_again():
    given = tensors()
    layout = Layout.of(given)
    vector = layout.join(given)
    assert vector.shape == (11,)
    for name, value in layout.named(vector).items():
        assert torch.equal(value, given[name])


def test_an_average_is_that_of_every_tensor_alone():
    given, weights = tensors((5,)), torch.tensor([1.0, 0.0, 2.0, 3.0, 4.0])
    for name, value in average(given, weights).items():
        torch.testing.assert_close(value, weighted_mean(given[name], weights))


def test_federations_average_on_their_own():
    given, weights = tensors((2, 5)), torch.rand(2, 5, generator=torch.Generator().manual_seed(1))
    together = vmap(average)(given, weights)
    for number in range(2):
        alone = average({name: value[number] for name, value in given.items()}, weights[number])
        for name, value in alone.items():
            torch.testing.assert_close(together[name][number], value)


@pytest.mark.parametrize("lanes", [(), (5,)])
def test_tensors_that_lie_in_a_vector_are_joined_without_a_copy(lanes):
    given = tensors(lanes)
    layout, leading = Layout.of(given, len(lanes)), len(lanes)
    whole = torch.cat([torch.zeros(*lanes, 2), layout.join(given, leading), torch.ones(*lanes, 3)], -1)
    parts = dict(zip(given, torch.split(whole, [2, 6, 1, 4, 3], -1)[1:4], strict=True))
    lying = {name: part.view(given[name].shape) for name, part in parts.items()}
    joined = layout.join(lying, leading)
    assert torch.equal(joined, layout.join(given, leading))
    assert joined.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    turned = {**lying, "a": given["a"].mT.contiguous().mT}
    in_other_order = {"a": lying["a"], "b": lying["c"][..., 0], "c": lying["c"]}
    of_other_memory = {**lying, "c": given["c"]}
    for apart in (turned, in_other_order, of_other_memory):
        found = layout.join(apart, leading)
        assert found.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
        assert torch.equal(found, torch.cat([apart[name].reshape(*lanes, -1) for name in "abc"], -1))


def test_gradients_reach_what_lies_in_a_vector():
    vector = torch.arange(6.0, requires_grad=True)
    parts = dict(zip("ab", torch.split(vector, 3), strict=True))
    (Layout.of(parts).join(parts) * torch.arange(6.0)).sum().backward()
    assert torch.equal(vector.grad, torch.arange(6.0))


def test_an_average_keeps_the_order_and_the_bits_wherever_tensors_lie():
    given, weights = tensors((5,)), torch.tensor([1.0, 0.0, 2.0, 3.0, 4.0])
    layout = Layout.of(given, 1)
    parts = torch.split(layout.join(given, 1), [6, 1, 4], -1)
    lying = {name: part.view(given[name].shape) for name, part in zip(given, parts, strict=True)}
    turned = dict(reversed(lying.items()))
    assert [*average(turned, weights)] == ["c", "b", "a"]
    for name, value in average(given, weights).items():
        assert torch.equal(average(turned, weights)[name], value)
