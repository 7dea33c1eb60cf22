"""Predictions where the data are: the adapted model of a node, asked while adaptation goes on."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedade.adapter.adapter import Adapter
from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.flower.client_app import Identity, make_client
from fedade.flower.settings import read_task
from fedade.flower.snapshots import Snapshot, newest_state
from fedade.flower.turns import Client

NODE = "node.json"
"""Beside a run's states: the configuration of the node that wrote them, whose task lies there too."""


class NotServedError(FedadeError):
    """Nothing was learned yet that could answer."""


@dataclass
class Served:
    """What a node answers with; replaced as a whole after every turn."""

    client: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _adapter: Adapter | None = None
    _told: dict[str, Any] = field(default_factory=dict)
    _requests: int = 0

    def publish(self, client: Client, snapshot: Snapshot) -> None:
        """Answer from now on by a client's state after a turn."""
        plan = {} if snapshot.opened is None else snapshot.opened.plan
        self._told = {
            "run": client.store.folder.name,
            "timestep": snapshot.timestep,
            "batch": snapshot.cursor,
            "waiting": client.stream.waiting(snapshot.cursor),
            "quarantined": client.store.quarantined(),
            "measures": {name: value.double().tolist() for name, value in plan.items()},
            "estimate": snapshot.estimate,
            "updated": time.time(),
        }
        self._adapter = client.adapter

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        if self._adapter is None:
            raise NotServedError(f"{self.client} has learned nothing yet that could answer")
        answer: NDArray[Any] = self._adapter.predict(inputs).numpy()
        with self._lock:
            self._requests += 1
        return answer

    def status(self) -> dict[str, Any]:
        return {"client": self.client, "serving": self._adapter is not None, "requests": self._requests, **self._told}


def remember_node(client: Client, node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> None:
    """Keep beside a run's states what is needed to read them without the server."""
    kept = client.store.folder / NODE
    if not kept.exists():
        said = {"node_config": dict(node_config), "run_config": dict(run_config)}
        storage.write_bytes(kept, json.dumps(said).encode(), private=True)


def restore(served: Served, state: Path) -> bool:
    """Serve the newest state in a client's folder; False where there is none."""
    newest = newest_state([kept.parent for kept in state.glob(f"*/{NODE}")])
    if newest is None:
        return False
    folder, number = newest
    said = storage.read_json(folder / NODE)
    identity = Identity.of({**said["node_config"], "state-dir": str(state.parent)}, said["run_config"])
    return make_client(read_task(folder), identity, folder.name).resume(number, served.publish)
