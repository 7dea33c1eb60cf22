import numpy as np
import pytest

from fedade.theory.oracle import oracle_of
from fedade.theory.study import Case, write_theory

from .theories import CHOSEN, SCENARIO, SETTINGS, run_case


@pytest.fixture(scope="session")
def cases(cache, tmp_path_factory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("runs")
    return {method: run_case(folder, method) for method in CHOSEN}


@pytest.fixture(scope="session")
def written(cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("theory")
    results = write_theory(list(cases.values()), folder, SETTINGS)
    return folder, {one.labels["method"]: one for one in results}


@pytest.fixture
def oracle(scenario_factory):
    scenario = scenario_factory(**{**SCENARIO, "schedule": "lin"})
    return oracle_of(scenario, 0, np.arange(6), SETTINGS)
