from dataclasses import replace

import numpy as np
import pytest

from fedade.core.scenario import Scenario
from fedade.methods.flh_ftl import FlhFtl
from fedade.methods.fth import Fth
from fedade.methods.prior_reweighting import PriorReweighting

from ...helpers import Rows, run

CHANGE = 12


@pytest.fixture(scope="module")
def change(scenario_factory) -> Scenario:
    """Every client stays at its target, and returns to the source prior halfway."""
    scenario = scenario_factory(num_clients=12, num_timesteps=2 * CHANGE, samples=30)
    schedule = (np.arange(2 * CHANGE + 1) <= CHANGE).astype(float)
    everyone = np.broadcast_to(schedule, (12, 2 * CHANGE + 1))
    return replace(scenario, streams=replace(scenario.streams, schedule=everyone))


def error(rows: Rows) -> float:
    """How far the forecast priors lie from the true ones."""
    return float(np.mean([np.abs(step["prior"] - step["true_prior"]).sum(-1) for step in rows]))


def test_it_remembers_while_nothing_changes_and_forgets_after_a_change(change):
    tracked, whole, last = (run(method, change) for method in (FlhFtl(), Fth(), PriorReweighting()))
    assert error(tracked[CHANGE - 6 : CHANGE]) < error(last[CHANGE - 6 : CHANGE])
    assert error(tracked[-6:]) < 0.9 * error(whole[-6:])


def test_forecasts_are_what_the_experts_are_weighed_by(change):
    slow, quick = (run(FlhFtl(forecast_rate=rate), change) for rate in (1e-6, 10.0))
    assert error(quick[-6:]) < 0.8 * error(slow[-6:])
