import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from fedade.methods import METHODS
from fedade.parts.optimisers import Moments, Optimiser, clipped

START = {"b": torch.tensor([1.0, -2.0, 0.5]), "a": torch.tensor(3.0)}


def descended(optimiser, start, slopes, rate):
    """The tensors and the state after a step along each of the slopes."""
    moved, state = dict(start), optimiser.start(start)
    for slope in slopes:
        directions, state = optimiser.directions(moved, slope, state)
        moved = {name: value - rate * directions[name] for name, value in moved.items()}
    return moved, state


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize(("name", "theirs"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_steps_are_those_of_pytorch(name, theirs, clip, decay):
    slopes = [{"b": torch.tensor([0.1, 5.0, 0.0]) * turn, "a": torch.tensor(-1.0 / turn)} for turn in range(1, 6)]
    leaves = {key: value.clone().requires_grad_() for key, value in START.items()}
    reference = theirs(leaves.values(), lr=0.01, weight_decay=decay)
    for slope in slopes:
        for key, leaf in leaves.items():
            leaf.grad = slope[key].clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(leaves.values(), clip)
        reference.step()
    moved, _ = descended(Optimiser(name=name, clip=clip, weight_decay=decay), START, slopes, 0.01)
    for key, leaf in leaves.items():
        torch.testing.assert_close(moved[key], leaf.detach(), atol=1e-6, rtol=1e-5)


def test_plain_sgd_remembers_nothing_and_passes_gradients_on_untouched():
    optimiser = Optimiser()
    assert optimiser.start(START) == ()
    gradient = torch.randn(4, generator=torch.Generator().manual_seed(0))
    direction, state = optimiser.direction(torch.ones(4), gradient, ())
    assert direction is gradient
    assert state == ()
    assert optimiser.directions(START, START, ())[0] == START


def test_moments_do_not_depend_on_the_order_of_names():
    slopes = [{"b": torch.tensor([0.1, 5.0, 0.0]), "a": torch.tensor(-1.0)}]
    reordered = [dict(reversed(slope.items())) for slope in slopes]
    optimiser = Optimiser(name="adamw")
    _, one = descended(optimiser, START, slopes, 0.1)
    _, other = descended(optimiser, dict(reversed(START.items())), reordered, 0.1)
    assert isinstance(one, Moments)
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_every_client_has_its_own_moments():
    optimiser = Optimiser(name="adamw", clip=1.0)
    values, slopes = {"a": torch.ones(2, 3)}, {"a": torch.tensor([[1.0, 1, 1], [0, 0, 0]])}
    directions, states = vmap(optimiser.directions)(values, slopes, vmap(optimiser.start)(values))
    assert (directions["a"][0] > 0).all()
    assert directions["a"][1].tolist() == [0, 0, 0]
    assert states.steps.tolist() == [1, 1]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_clipping_shortens_and_never_turns_or_stretches(entries, longest):
    gradient = torch.tensor(entries, dtype=torch.float64)
    found = clipped(gradient, longest)
    length = gradient.norm()
    if length < longest * (1 - 1e-12):
        assert torch.equal(found, gradient)
    else:
        torch.testing.assert_close(found, gradient * longest / length)
        assert found.norm() <= longest * (1 + 1e-12)


@pytest.mark.parametrize("name", ["tent", "cotta"])
def test_methods_that_were_published_with_adam_keep_it_when_only_clipped(name):
    optimiser = METHODS[name](optimiser={"clip": 1.0}).optimiser
    assert (optimiser.name, optimiser.clip) == ("adamw", 1.0)


STEPS_OF_THEIR_OWN = {"rogd", "fed-the-plus"}
"""Their step sizes are what they are about, or each sample has steps that are then put back."""


def test_every_other_method_with_a_rate_takes_an_optimiser():
    fields = {name: getattr(make, "func", make).model_fields for name, make in METHODS.items()}
    taking = {name for name, known in fields.items() if "optimiser" in known}
    assert (
        taking
        == {name for name, known in fields.items() if {"rate", "learning_rate"} & set(known)} - STEPS_OF_THEIR_OWN
    )
