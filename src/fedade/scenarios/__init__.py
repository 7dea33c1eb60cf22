"""Scenarios: what is deployed and how the clients' data then drifts."""

from fedade.scenarios.building import another, build_deployment, build_scenario
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

__all__ = ["PretrainingSettings", "ScenarioSettings", "another", "build_deployment", "build_scenario"]
