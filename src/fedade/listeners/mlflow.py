"""MLflow: a run per cell, in the store that MLFLOW_TRACKING_URI names or in a database in the folder."""

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import CellInfo
from fedade.core.optional import OptionalModule
from fedade.listeners.tracker import Record, flattened

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
        place = (out or folder).resolve()
        self._uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / 'mlflow.db'}"
        name, artifacts = folder.resolve().name, None
        with _told():
            new_client = tracking.MlflowClient
            logging.getLogger("mlflow").setLevel(logging.WARNING)
            if self._uri.startswith("sqlite:"):
                place.mkdir(parents=True, exist_ok=True)
                artifacts = (place / "mlartifacts").as_uri()  # MLflow's default is the working directory
                _ = database.create_engine  # a missing extra in one line
            self._client = new_client(tracking_uri=self._uri)
            known = self._client.get_experiment_by_name(name)
            self._experiment = known.experiment_id if known else self._client.create_experiment(name, artifacts)

    def record(self, cell: CellInfo) -> Record:
        """The cell's run in this store, continued after its last timestep, or a new one."""
        store = hashlib.blake2b(self._uri.encode(), digest_size=8).hexdigest()  # it may hold a password
        path = cell.folder / "mlflow.json"
        runs = storage.read_json(path) if path.exists() else {}
        with _told():
            if store not in runs:
                runs[store] = self._begin(cell)
                storage.write_json(path, runs)
            return self._continue(runs[store], cell.num_timesteps)

    def _begin(self, cell: CellInfo) -> str:
        labels = {name: str(value) for name, value in cell.labels.items()}
        run = self._client.create_run(self._experiment, run_name=cell.title, tags=labels | {"address": cell.address})
        params = [entities.Param(name, str(value)[:LONGEST]) for name, value in flattened(cell.settings).items()]
        for first in range(0, len(params), AT_ONCE):
            self._client.log_batch(run.info.run_id, params=params[first : first + AT_ONCE])
        return str(run.info.run_id)

    def _continue(self, run_id: str, num_timesteps: int) -> Record:
        data = self._client.get_run(run_id).data
        if "failure" in data.tags:
            self._client.delete_tag(run_id, "failure")
        histories = [self._client.get_metric_history(run_id, name) for name in data.metrics]
        last = max((point.step for history in histories for point in history), default=0)
        ended = any(name.startswith("result/") for name in data.metrics)
        if not ended:
            self._client.update_run(run_id, "RUNNING")
        return _Run(self._client, run_id, num_timesteps, last, ended)


class _Run:
    def __init__(self, client: Any, run_id: str, num_timesteps: int, last: int, ended: bool) -> None:
        self._client, self._run_id, self._num_timesteps, self._ended = client, run_id, num_timesteps, ended
        self._held: list[Any] = []
        self._written = time.monotonic()
        self.last = last

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
        with _told():
            self._client.set_tag(self._run_id, "failure", reason)
        self._terminate("FAILED")

    def close(self) -> None:
        with _told():
            for first in range(0, len(self._held), AT_ONCE):
                self._client.log_batch(self._run_id, metrics=self._held[first : first + AT_ONCE])
        self._held, self._written = [], time.monotonic()

    def _terminate(self, status: str) -> None:
        self.close()
        with _told():
            self._client.set_terminated(self._run_id, status)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except FedadeError:
        raise
    except (OSError, exceptions.MlflowException) as error:
        raise FedadeError(f"MLflow cannot be written ({' '.join(str(error).split())})") from error
