"""A gradient step on all parameters in one kernel is what plain PyTorch does, wherever they lie, whoever has them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from fedade.core.seeds import Seeds
from fedade.kernels import reference

pytest.importorskip("triton")
CLIENTS = 3


def randoms(*shape: int) -> Tensor:
    return torch.from_numpy(Seeds(0).generator("steps", size=sum(shape)).normal(size=shape)).float()


def assert_same(parameters: list[Tensor], gradients: list[Tensor], rate: Tensor, own: tuple[bool, ...]) -> None:
    """For clients some of whose parameters are their own."""
    from fedade.kernels.step_lanes import stepped

    dims = [0 if mapped else None for mapped in own], [0] * len(own), 0
    found = vmap(stepped, dims)(parameters, gradients, rate)
    torch.testing.assert_close(found, vmap(reference.stepped, dims)(parameters, gradients, rate))


@settings(deadline=None)  # the first imports Triton
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_steps_are_right_wherever_parameters_lie(tensors: list[tuple[int, bool, bool]]) -> None:
    parameters = [randoms(*(CLIENTS,) * own, 2, size) for size, own, _ in tensors]
    gradients = [randoms(CLIENTS, size, 2).mT if turned else randoms(CLIENTS, 2, size) for size, _, turned in tensors]
    assert_same(parameters, gradients, randoms(CLIENTS), tuple(own for _, own, _ in tensors))


@pytest.mark.parametrize("size", [1, 4, 5, 4095, 4096, 4097, 8196])
def test_steps_are_right_at_the_ends_of_blocks(size: int) -> None:
    sizes, vector = [8, size, 4], randoms(CLIENTS, 12 + size)
    parameters, gradients = (list(torch.split(whole, sizes, 1)) for whole in (vector, 2 * vector))
    assert_same(parameters, gradients, randoms(CLIENTS), (True,) * 3)


def test_more_tensors_than_a_launch_takes() -> None:
    from fedade.kernels.step_lanes import TENSORS_AT_ONCE

    parameters = [randoms(CLIENTS, 3 + number % 4) for number in range(TENSORS_AT_ONCE + 2)]
    assert_same(parameters, [-value for value in parameters], randoms(CLIENTS), (True,) * len(parameters))


def test_steps_of_one_client_and_of_many_federations() -> None:
    from fedade.kernels.step_lanes import stepped

    parameters, gradients, rate = [randoms(5, 2), randoms(3)], [randoms(2, 3, 5, 2), randoms(2, 3, 3)], randoms(2, 3)
    expected = torch.stack(
        [
            torch.stack(
                [
                    reference.stepped(parameters, [slope[one, two] for slope in gradients], rate[one, two])
                    for two in range(3)
                ]
            )
            for one in range(2)
        ]
    )
    in_one = [None, None]
    nested = vmap(vmap(stepped, (in_one, [0, 0], 0)), (in_one, [0, 0], 0))(parameters, gradients, rate)
    torch.testing.assert_close(nested, expected)
    alone = stepped(parameters, [slope[1, 2] for slope in gradients], rate[1, 2])
    torch.testing.assert_close(alone, expected[1, 2])
    common = vmap(lambda slopes: stepped(parameters, slopes, rate[0, 0]))([slope[0] for slope in gradients])
    torch.testing.assert_close(common[0], expected[0, 0])


def test_a_vector_of_the_parameters_is_not_made_again() -> None:
    parameters, gradients, rate = [randoms(5), randoms(3)], [randoms(5), randoms(3)], torch.tensor(0.5)
    given_vector = reference.stepped(parameters, gradients, rate, torch.cat(parameters))
    assert torch.equal(given_vector, reference.stepped(parameters, gradients, rate))
