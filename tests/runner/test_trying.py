"""Trials of a method's constants."""

import numpy as np
import pytest
import torch

from fedade.core.errors import FedadeError
from fedade.engine.clock import Clock
from fedade.experiments.settings import experiment_from
from fedade.methods.fed_ade import FedAde
from fedade.methods.tent import Tent
from fedade.parts.rates import Paces
from fedade.runner.trying import TrialRunner

RATES = (1e-4, 1e-2, 3e38, 3e-2)
"""The third diverges."""


@pytest.fixture
def scenario(scenario_factory):
    return scenario_factory(num_clients=4, num_timesteps=2, samples=10)


@pytest.fixture
def batches(monkeypatch) -> list[int]:
    """How many federations each clock had."""
    seen = []
    begun = Clock.beginning

    def beginning(clock):
        seen.append(len(clock.federations))
        return begun(clock)

    monkeypatch.setattr(Clock, "beginning", beginning)
    return seen


def runner(side_by_side: bool) -> TrialRunner:
    return TrialRunner(experiment_from({"execution": {"client_map": "vectorised"}}), side_by_side)


def test_side_by_side_is_one_after_the_other_and_who_diverges_is_alone_in_it(scenario, batches):
    methods = [Tent(learning_rate=rate) for rate in RATES]
    together, apart = (list(runner(side_by_side)(methods, scenario)) for side_by_side in (True, False))
    assert batches == [4, 1, 1, 1, 1]
    assert [isinstance(rows, FedadeError) for rows in together] == [False, False, True, False]
    for one, other in zip(together, apart, strict=True):
        if isinstance(other, FedadeError):
            assert "diverged" in str(one)
            continue
        np.testing.assert_allclose(one["learning_rate"], other["learning_rate"], rtol=1e-6)
        np.testing.assert_allclose(one["entropy"], other["entropy"], rtol=1e-3, atol=1e-5)


def test_methods_that_differ_in_more_than_their_rates_run_one_after_the_other(scenario, batches):
    methods = [FedAde(personal_step="all", paces=Paces(shared=pace)) for pace in (0.0, 1.0)]
    assert len(list(runner(True)(methods, scenario))) == 2
    assert batches == [1, 1]


def test_what_does_not_fit_into_memory_together_runs_in_halves(scenario, batches, monkeypatch):
    advance = Clock.advance

    def fits(clock, world):
        if len(clock.federations) > 2:
            raise torch.OutOfMemoryError("too much")
        return advance(clock, world)

    monkeypatch.setattr(Clock, "advance", fits)
    rates = (1e-4, 1e-3, 1e-2, 2e-2, 3e-2)
    found = list(runner(True)([Tent(learning_rate=rate) for rate in rates], scenario))
    assert batches == [5, 2, 3, 1, 2]
    assert [rows["learning_rate"].max() for rows in found] == pytest.approx(rates)
