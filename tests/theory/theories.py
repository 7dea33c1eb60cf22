"""Short runs whose theory is looked at."""

from pathlib import Path

from fedade.core.events import Listener
from fedade.experiments.settings import experiment_from
from fedade.products.run_folder import run
from fedade.theory.oracle import TheorySettings
from fedade.theory.study import Case

from ..conftest import SMALL

SETTINGS = TheorySettings(clients=3, timesteps=4, points=1)
SCENARIO = {**SMALL, "num_clients": 6, "num_timesteps": 9, "samples": 20, "schedule": "squ"}
PROTOCOL = {"rounds": 1, "participation": 0.5, "score_fresh": True}
FED_ADE = {"rate": {"low": 0.03, "mid": 0.05, "high": 0.1}, "batch_size": 50}
CHOSEN = ("fed-ade", "source", "oracle-prior")


def run_case(folder: Path, method: str, **scenario: object) -> Case:
    experiment = experiment_from(
        {
            "scenario": {**SCENARIO, **scenario},
            "protocol": PROTOCOL,
            "methods": [{method: FED_ADE if method == "fed-ade" else {}}],
        }
    )
    run(experiment, folder / method, Listener())
    return Case({"suite": "small", "row": f"the {method}"}, experiment, folder / method / "trace.parquet")
