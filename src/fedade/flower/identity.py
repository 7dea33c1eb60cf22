"""Who a client is, and where it keeps its things: from its node's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from fedade.core.errors import FedadeError
from fedade.flower.names import CLIENT_NAME, numbered_name
from fedade.flower.settings import FlowerSettings

ANYTHING = "*"
"""Instead of the names of modules: all that can be imported."""


@dataclass(frozen=True)
class Identity:
    """A client by its node's configuration: `client`, `state-dir`, `stream`, `labelled`, `deployment`, `imports`,
    `partition-id`."""

    name: str
    state_dir: Path
    stream: str | None
    labelled: Path | None
    """The file of its own labelled data, which never leaves its host."""
    deployment: Path | None
    partition: int | None
    imports: tuple[str, ...] | None = ()
    """Modules that an app may name for a stream, a method or a model; None: any."""

    @classmethod
    def of(cls, node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> "Identity":
        """Read a node's configuration; what it leaves out may be said by the run."""
        partition = node_config.get("partition-id")
        name = str(node_config.get("client") or ("" if partition is None else numbered_name(int(partition))))
        if not CLIENT_NAME.fullmatch(name):
            raise FedadeError(
                f"--node-config: client={name!r} is no client name; expected letters, digits, '.', '_' and '-', "
                'for example client="clinic-7"'
            )
        state = node_config.get("state-dir") or run_config.get("state-dir") or platformdirs.user_state_dir("fedade")
        stream, labelled = node_config.get("stream"), node_config.get("labelled")
        deployment = node_config.get("deployment") or run_config.get("deployment")
        return cls(
            name,
            Path(str(state)) / name,
            None if stream is None else str(stream),
            Path(str(labelled)) if labelled else None,
            Path(str(deployment)) if deployment else None,
            None if partition is None else int(partition),
            _modules(str(node_config.get("imports") or "")),
        )

    def state_of(self, run: str) -> Path:
        """Where the client keeps its state of a run; the name comes over the network, and must not lead elsewhere."""
        if not CLIENT_NAME.fullmatch(run):
            raise FedadeError(f"the server calls its run {run!r}, which is no name; is it the right server?")
        return self.state_dir / run

    def number_in(self, settings: FlowerSettings) -> int:
        """Which part of a dataset is this client's."""
        if self.partition is not None:
            return self.partition
        if self.name not in settings.clients:
            raise FedadeError(
                f"client {self.name}: the stream `partition` needs partition-id in --node-config, or its name in "
                "flower.clients"
            )
        return settings.clients.index(self.name)


def _modules(named: str) -> tuple[str, ...] | None:
    return None if named == ANYTHING else tuple(word for word in named.replace(",", " ").split() if word)
