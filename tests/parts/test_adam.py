import torch
from torch.func import vmap

from fedade.parts.adam import adam_start, adam_step


def test_it_is_pytorchs_adam():
    start = {"a": torch.tensor([1.0, -2.0, 0.5]), "b": torch.tensor(3.0)}
    slopes = [{"a": torch.tensor([0.1, 5.0, 0.0]) * turn, "b": torch.tensor(-1.0 / turn)} for turn in range(1, 6)]
    theirs = [value.clone().requires_grad_() for value in start.values()]
    optimiser = torch.optim.Adam(theirs, lr=0.01)
    ours, moments = start, adam_start(start)
    for slope in slopes:
        for value, gradient in zip(theirs, slope.values(), strict=True):
            value.grad = gradient.clone()
        optimiser.step()
        ours, moments = adam_step(ours, slope, moments, 0.01)
    for one, other in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(one, other.detach())


def test_every_client_has_its_own_moments():
    values, slopes = {"a": torch.ones(2, 3)}, {"a": torch.tensor([[1.0, 1, 1], [0, 0, 0]])}
    moments = vmap(adam_start)(values)
    moved, moments = vmap(lambda *one: adam_step(*one, 0.1))(values, slopes, moments)
    assert (moved["a"][0] < 1).all()
    assert moved["a"][1].tolist() == [1, 1, 1]
    assert moments.steps.tolist() == [1, 1]
