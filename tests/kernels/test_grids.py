"""Every kernel has a grid of one axis: a GPU takes no more than 65,535 programs along the others."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedade.kernels
from fedade.kernels.grids import MOST_PROGRAMS, grid


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
