"""Block sizes that are tried: what is chosen first, then all that fit, for as long as there is time."""

import pytest
import torch

pytest.importorskip("triton")

from speed.tilings import CONVOLUTIONS, TOKENS, fits, rows_of, trials, tried

from fedade.kernels import compiling
from fedade.kernels.tilings import SplitTiling, Tiling, product_tiling
from speed import tilings


@pytest.mark.parametrize("shape", [*TOKENS, *CONVOLUTIONS], ids=str)
def test_what_is_chosen_comes_first_and_nothing_twice(shape):
    found = {name: [tiling for tiling, _ in each] for name, each in trials(shape)}
    assert [*found] == ["forward", "input", "weights"]
    assert found["forward"][0] == product_tiling(shape.image.channels, shape.outputs, shape.stride, 2, shape.kernel)
    for each in found.values():
        assert len(set(each)) == len(each) > 1
        assert all(map(fits, each[1:]))
        blocks = [tiling.block if isinstance(tiling, SplitTiling) else tiling for tiling in each]
        assert all(not size & (size - 1) for block in blocks for size in (block.groups, block.breadth, block.depth)), (
            "Triton takes powers of two"
        )


@pytest.mark.parametrize("block", [(256, 128), (128, 256)])
def test_large_blocks_are_tried_where_there_are_many_channels(block):
    shapes = [shape for shape in CONVOLUTIONS if shape.image.channels >= 256]
    for shape in (*TOKENS, *shapes):
        forward = dict(trials(shape))["forward"]
        assert any((tiling.groups, tiling.breadth, tiling.warps) == (*block, 8) for tiling, _ in forward)
    assert {shape.image.channels for shape in shapes} == {256, 512}


def test_what_cannot_fit_is_left_out():
    assert fits(Tiling(1, 256, 128, 64, 8, 3))
    assert not fits(Tiling(1, 256, 128, 64, 4, 3)), "sums of 256 registers a thread"
    assert not fits(Tiling(1, 256, 128, 128, 8, 3)), "288 KB of blocks"
    assert not fits(SplitTiling(Tiling(1, 64, 128, 128, 4, 3)))
    assert fits(SplitTiling(Tiling(1, 64, 128, 128, 4, 3), with_sums=False))


def test_time_is_kept_and_the_fastest_are_told(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(tilings.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(tilings.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(tilings, "compile_side_by_side", lambda _work: None)
    monkeypatch.setattr(tilings, "timed", lambda work, sets: work(sets))
    each = [(Tiling(1, 64, 64, depth, 4, 3), lambda of, depth=depth: of / depth) for depth in range(1, 100)]
    found = tried(each, [2.0, 4.0], end=20)
    assert 4 < len(found) < 20
    rows = [*rows_of("forward", TOKENS[0], (10, 100), 50, found)]
    assert [row["chosen"] for row in rows] == [True, False, False, False] * 2
    assert [row["depth"] for row in rows[:4]] == [1, len(found), len(found) - 1, len(found) - 2]
    assert rows[4]["milliseconds"] == 4.0
    assert not tried(each, [2.0], end=0)


@pytest.mark.parametrize("shape", TOKENS, ids=str)
def test_every_trial_can_be_launched(shape, monkeypatch):
    launched = []
    monkeypatch.setattr(compiling.Compiler, "launch", lambda _self, kernel, *_, **_constants: launched.append(kernel))
    image, zeros = shape.image, torch.zeros
    of = tilings.Operands(
        zeros(2, 1, 1, 17, image.channels, dtype=torch.bfloat16),
        zeros(2, shape.outputs, 1, 1, image.channels, dtype=torch.bfloat16),
        zeros(2, shape.outputs),
        zeros(2, 1, 1, 17, shape.outputs, dtype=torch.bfloat16),
    )
    with compiling.instead_of_running():
        for name, each in trials(shape):
            launched.clear()
            for _, work in each:
                work(of)
            product = "window_outer_product" if name == "weights" else "window_product"
            assert [kernel.__name__ for kernel in launched].count(product) == len(each)
