"""Before a step first runs on a GPU it may be tried, to compile what it needs; what it computes then is thrown away."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedade.engine.execution import _Recorded


def test_a_step_is_tried_once_for_each_shape_on_copies_and_may_fail() -> None:
    tried: list[bool] = [False]
    seen: list[tuple[bool, tuple[int, ...]]] = []

    @contextmanager
    def trying() -> Iterator[None]:
        tried[0] = True
        try:
            yield
        finally:
            tried[0] = False

    def step(values: Tensor) -> Tensor:
        seen.append((tried[0], tuple(values.shape)))
        values += 1
        if tried[0]:
            raise ZeroDivisionError
        return values

    recorded = _Recorded(step, set(), trying)
    first = torch.zeros(2)
    assert torch.equal(recorded(first), torch.ones(2))
    recorded(torch.zeros(3))
    assert seen == [(True, (2,)), (False, (2,)), (True, (3,)), (False, (3,))]


def test_constants_of_a_trial_are_forgotten(scenario_factory) -> None:
    deployment = scenario_factory().deployment
    known = deployment.constant(_one)
    with deployment.forgetting():
        assert deployment.counting(None).constant(_zero) == 0
    assert deployment.constant(_one) is known
    assert _zero not in deployment._constants


def _one(_deployment: object) -> int:
    return 1


def _zero(_deployment: object) -> int:
    return 0
