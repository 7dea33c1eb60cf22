"""Every kernel has a grid of one axis: a GPU takes no more than 65,535 programs along the others."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedade.kernels
from fedade.kernels.grids import MOST_PROGRAMS, compiling_ahead, grid, launch, room


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=3))
def test_counts_are_folded_into_the_axis_that_takes_the_most(counts: list[int]) -> None:
    programs = 1
    for count in counts:
        programs *= count
    if programs > MOST_PROGRAMS:
        with pytest.raises(ValueError, match="let fewer clients share a batch"):
            grid(*counts)
    else:
        assert grid(*counts) == (programs,)


def test_one_beyond_what_the_second_axis_takes() -> None:
    """Four federations of 100 clients with 164 images each, and as many clients with weights of their own."""
    assert grid(3, 65_536) == (196_608,)
    assert grid(2, 65_536, 65_536 // 8) == (2**30,)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_programs_find_their_place_again(first: int, second: int, third: int) -> None:
    """As kernels divide their number; the order is that of a grid with three axes."""
    numbers = range(grid(first, second, third)[0])
    found = [(place % first, place // first % second, place // (first * second)) for place in numbers]
    assert found == [(x, y, z) for z in range(third) for y in range(second) for x in range(first)]


def test_no_kernel_has_a_second_axis() -> None:
    for path in Path(fedade.kernels.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.program_id", "tl.num_programs"):
                assert ast.unparse(node.args[0]) == "0", path.name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and path.name != "grids.py":
                raise AssertionError(f"{path.name}: launch({ast.unparse(node.func.value)}, ...)")


class FakeKernel:
    """Notes what it was asked for."""

    __name__ = "fake"

    def __init__(self) -> None:
        self.compiled: list[Any] = []
        self.ran: list[Any] = []
        kinds = [(False, False), (False, False), (False, True), (True, False)]
        self.params = [SimpleNamespace(is_constexpr=one, do_not_specialize=other) for one, other in kinds]

    def warmup(self, *arguments: Any, grid: tuple[int], **_constants: Any) -> None:
        self.compiled.append((grid, arguments))
        raise RuntimeError("what does not compile says so when it is launched")

    def __getitem__(self, programs: tuple[int]) -> Any:
        return lambda *arguments: self.ran.append((programs, arguments))


def test_what_is_launched_while_compiling_ahead_is_compiled_once_and_not_run() -> None:
    kernel, images = FakeKernel(), torch.ones(8)
    with compiling_ahead():
        for length, count, block in ((32, 5, 64), (48, 6, 64), (33, 5, 64), (33, 5, 128)):
            launch(kernel, 2, 3)(images, length, count, block)
        assert torch.equal(room(images, (2, 2)), torch.zeros(2, 2))
    assert len(kernel.compiled) == 3  # numbers that 16 divides are one kind, and some do not count at all
    assert not kernel.ran
    launch(kernel, 2, 3)(images, 32, 5, 64)
    assert kernel.ran == [((6,), (images, 32, 5, 64))]


def test_tensors_are_not_held_while_they_wait_for_a_compiler() -> None:
    kernel = FakeKernel()
    with compiling_ahead():
        launch(kernel, 1)(torch.ones(4, dtype=torch.float16), 1, 1, 1)
    shown = kernel.compiled[0][1][0]
    assert not isinstance(shown, torch.Tensor)
    assert (shown.dtype, shown.data_ptr() % 16) == (torch.float16, 0)
