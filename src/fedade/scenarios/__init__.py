"""Scenarios: what is deployed and how the clients' data then drifts."""

from fedade.scenarios.building import Testbed, build_deployment, build_scenario, build_testbed
from fedade.scenarios.identifying import identified
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

__all__ = [
    "PretrainingSettings",
    "ScenarioSettings",
    "Testbed",
    "build_deployment",
    "build_scenario",
    "build_testbed",
    "identified",
]
