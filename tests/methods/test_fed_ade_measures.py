"""Fed-ADE's signals under every measure."""

import numpy as np
import pytest

from fedade.core.scenario import Scenario
from fedade.methods.fed_ade import FedAde
from fedade.parts.measures import MEASURES

from ..helpers import mean, run
from .checks import assert_maps_agree

RATES = {"low": 1e-3, "mid": 1e-2, "high": 3e-2}


@pytest.fixture(scope="module")
def scenario(scenario_factory) -> Scenario:
    return scenario_factory(kind="both", schedule="squ")


@pytest.mark.parametrize("debiased", [False, True])
@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_sets_rates_and_both_maps_agree(scenario_factory, measure, debiased):
    small = scenario_factory(kind="both", schedule="squ", num_clients=3, num_timesteps=2)
    method = FedAde(measure=measure, debiased=debiased, rate=RATES, joint_epochs=1, personal_epochs=1)
    assert_maps_agree(method, small)


def test_the_measure_changes_signals_and_memory_and_nothing_else_where_rates_are_zero(scenario):
    paper, other = (
        run(FedAde(measure=measure, rate={"low": 0, "high": 0}), scenario)[1] for measure in ("cosine", "kl")
    )
    changed = {name for name in paper if not np.array_equal(paper[name], other[name])}
    assert changed == {"s", "s_unc", "s_rep", "state_bytes"}
    kept = run(FedAde(measure="kl", feature_measure="cosine", rate={"low": 0, "high": 0}), scenario)[1]
    assert np.array_equal(kept["s_rep"], paper["s_rep"])
    assert np.array_equal(kept["s_unc"], other["s_unc"])


def test_taking_the_noise_floor_off_calms_the_rates_of_a_still_world(scenario_factory):
    still = scenario_factory(kind="none")
    raw, corrected = (mean(run(FedAde(debiased=debiased), still), "s_unc") for debiased in (False, True))
    assert corrected < 0.6 * raw
