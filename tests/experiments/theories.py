"""Short runs whose theory is looked at."""

from pathlib import Path

from fedade.experiments.settings import experiment_from
from fedade.experiments.theory import Case
from fedade.experiments.theory_oracle import TheorySettings
from fedade.experiments.tracks import Track, run_one

from ..conftest import SMALL

SETTINGS = TheorySettings(clients=3, timesteps=4, points=1)
SCENARIO = {**SMALL, "num_clients": 6, "num_timesteps": 9, "samples": 20, "schedule": "squ"}
FEDERATION = {"rounds": 1, "participation": 0.5, "score_fresh": True}
METHOD = {"rate": {"low": 0.03, "mid": 0.05, "high": 0.1}, "batch_size": 50}
CHOSEN = ("fed-ade", "source", "oracle-prior")


def run_case(folder: Path, method: str, **scenario: object) -> Case:
    experiment = experiment_from(
        {
            "scenario": {**SCENARIO, **scenario},
            "federation": FEDERATION,
            "methods": (method,),
            "method": METHOD,
        }
    )
    track = Track(method, 0)
    run_one(experiment, folder, "cpu", track, lambda *_: None)
    return Case({"suite": "small", "row": f"the {method}"}, experiment, track.folder(folder) / "trace.parquet")
