"""MLflow: a run per cell, in the store that MLFLOW_TRACKING_URI names or in a database in the folder."""

import hashlib
import logging
import os
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import CellInfo
from fedade.core.importing import OptionalModule
from fedade.listeners.tracker import TrackedCell, flattened

tracking: Any = OptionalModule("mlflow.tracking", "mlflow")
entities: Any = OptionalModule("mlflow.entities", "mlflow")
exceptions: Any = OptionalModule("mlflow.exceptions", "mlflow")
database: Any = OptionalModule("sqlalchemy", "mlflow")
SECONDS_BETWEEN_WRITES = 1.0
"""A request per timestep would slow a fast run down; what a kill loses is on disk, and is added when it goes on."""
AT_ONCE = 100
"""Entries of one request; MLflow takes as many settings."""
LONGEST = 6000
"""Characters of a setting."""


class MLflow:
    """An experiment with the folder's name; which run is a cell's is kept in the cell's `mlflow.json`."""

    def __init__(self, folder: Path, out: Path | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import; nobody else is to hear of a run
        self._name, self._place = folder.resolve().name, (out or folder).resolve()
        self._uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        self.errors: tuple[type[Exception], ...] = (OSError, exceptions.MlflowException)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        _ = database.create_engine, tracking.MlflowClient  # a missing extra is told before the run
        try:
            _ = self._uri and self._store  # and so is a server that does not answer
        except self.errors as error:
            raise FedadeError(f"MLFLOW_TRACKING_URI: {' '.join(str(error).split())}") from error

    @cached_property
    def _store(self) -> tuple[Any, str]:
        """The client, and the experiment's id; a database of our own is made with the first record, in a folder that
        the run has claimed by then."""
        artifacts = None
        if not self._uri:
            self._place.mkdir(parents=True, exist_ok=True)
            self._uri = f"sqlite:///{self._place / 'mlflow.db'}"
            artifacts = (self._place / "mlartifacts").as_uri()  # MLflow's default is the working directory
        client = tracking.MlflowClient(tracking_uri=self._uri)
        known = client.get_experiment_by_name(self._name)
        return client, known.experiment_id if known else client.create_experiment(self._name, artifacts)

    def record(self, cell: CellInfo) -> TrackedCell:
        """The cell's run in this store, continued after its last timestep, or a new one."""
        client, experiment = self._store
        store = hashlib.blake2b(self._uri.encode(), digest_size=8).hexdigest()  # the address may hold a password
        path = cell.folder / "mlflow.json"
        runs = storage.read_json(path) if path.exists() else {}
        if store not in runs:
            runs[store] = _begin(client, experiment, cell)
            storage.write_json(path, runs)
        return _Run(client, runs[store], cell.num_timesteps)


def _begin(client: Any, experiment: str, cell: CellInfo) -> str:
    labels = {name: str(value) for name, value in cell.labels.items()}
    run = client.create_run(experiment, run_name=cell.title, tags=labels | {"address": cell.address})
    params = [entities.Param(name, str(value)[:LONGEST]) for name, value in flattened(cell.settings).items()]
    for first in range(0, len(params), AT_ONCE):
        client.log_batch(run.info.run_id, params=params[first : first + AT_ONCE])
    return str(run.info.run_id)


class _Run:
    def __init__(self, client: Any, run_id: str, num_timesteps: int) -> None:
        self._client, self._run_id, self._num_timesteps = client, run_id, num_timesteps
        self._held, self._written = list[Any](), time.monotonic()
        data = client.get_run(run_id).data
        histories = [client.get_metric_history(run_id, name) for name in data.metrics]
        self.last = max((point.step for history in histories for point in history), default=0)
        self._ended = any(name.startswith("result/") for name in data.metrics)
        if "failure" in data.tags:
            client.delete_tag(run_id, "failure")
        if not self._ended:
            client.update_run(run_id, "RUNNING")

    def write(self, timestep: int, measures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._held += [entities.Metric(name, value, now, timestep) for name, value in measures.items()]
        self.last = timestep
        if time.monotonic() - self._written > SECONDS_BETWEEN_WRITES:
            self.close()

    def end(self, numbers: Mapping[str, float]) -> None:
        if not self._ended:
            self.write(self._num_timesteps, {f"result/{name}": value for name, value in numbers.items()})
        self._terminate("FINISHED")

    def fail(self, reason: str) -> None:
        self._client.set_tag(self._run_id, "failure", reason)
        self._terminate("FAILED")

    def close(self) -> None:
        for first in range(0, len(self._held), AT_ONCE):
            self._client.log_batch(self._run_id, metrics=self._held[first : first + AT_ONCE])
        self._held, self._written = [], time.monotonic()

    def _terminate(self, status: str) -> None:
        self.close()
        self._client.set_terminated(self._run_id, status)
