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
