import pytest
import torch
from hypothesis import given
from torch.func import vmap

from fedade.maths.signals.distances import BLUR, class_costs, sinkhorn_divergence

from ..samples import QUICK, generator, seeds, softmax_batch

ROWS = torch.randn(10, 24, generator=generator(0))
COSTS = class_costs(ROWS)


def test_costs_are_of_directions_and_classes_that_look_alike_are_close():
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.1], [-1.0, 0.0]])
    costs = class_costs(rows)
    assert costs.max() == 1
    assert (costs.diagonal() == 0).all()
    assert costs[0, 1] < 0.01 < 0.9 < costs[0, 2]
    assert torch.isfinite(class_costs(torch.ones(3, 2))).all(), "all classes alike"


@QUICK
@given(seed=seeds)
def test_the_divergence_is_symmetric_within_zero_and_one_and_vanishes_for_equal_inputs(seed):
    first, second = softmax_batch(seed, 2, 10, scale=3.0)
    moved = sinkhorn_divergence(first, second, COSTS)
    assert 0 < moved <= 1
    assert moved.item() == pytest.approx(sinkhorn_divergence(second, first, COSTS).item(), abs=1e-3)
    assert sinkhorn_divergence(first, first.clone(), COSTS) == 0


def test_it_grows_along_a_shift_and_survives_absent_classes():
    uniform, one_class = torch.full((10,), 0.1), torch.eye(10)[3]
    path = [(1 - weight) * uniform + weight * one_class for weight in torch.linspace(0, 1, 11)]
    moved = torch.stack([sinkhorn_divergence(uniform, step, COSTS) for step in path])
    assert moved[0] < 1e-6
    assert (moved.diff() > 0).all()
    assert sinkhorn_divergence(one_class, torch.eye(10)[4], COSTS).item() == pytest.approx(COSTS[3, 4].item(), abs=1e-4)


def test_moving_to_a_class_that_looks_alike_costs_less():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.2], [-1.0, 0.0]])
    here, near, far = torch.eye(3)
    costs = class_costs(rows)
    assert sinkhorn_divergence(here, near, costs) < 0.1 * sinkhorn_divergence(here, far, costs)


def test_it_agrees_with_python_optimal_transport():
    ot = pytest.importorskip("ot")
    first, second = (part / part.sum() for part in softmax_batch(5, 2, 10).double())

    def cost(a, b):
        arrays = (part.numpy() for part in (a, b, COSTS.double()))
        plan = torch.from_numpy(ot.sinkhorn(*arrays, BLUR, method="sinkhorn_log", warn=False))
        return (plan * COSTS).sum() + BLUR * (plan * (plan / (a[:, None] * b)).log()).sum()

    expected = cost(first, second) - (cost(first, first) + cost(second, second)) / 2
    found = sinkhorn_divergence(first, second, COSTS.double())
    assert found.item() == pytest.approx(expected.item(), abs=1e-4)


def test_vmap_equals_one_at_a_time():
    first, second = softmax_batch(0, 2, 4, 10)
    together = vmap(lambda a, b: sinkhorn_divergence(a, b, COSTS))(first, second)
    alone = torch.stack([sinkhorn_divergence(a, b, COSTS) for a, b in zip(first, second, strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
