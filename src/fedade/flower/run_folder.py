"""The run folder of a Flower run: whose it is, and how the run fares, for whoever started it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.flower.settings import Task

STATUS = "flower.json"


def claim(out: Path, task: Task) -> None:
    """Make a folder the task's own; one that holds another run, or something else, is refused."""
    config, plain = out / "config.yaml", task.experiment.as_plain()
    if not config.exists() and out.exists() and any(out.iterdir()):
        raise FedadeError(f"{out} is not empty and holds no run; choose another folder with --out")
    if config.exists() and storage.read_yaml(config) != plain:
        raise FedadeError(f"{out} holds another run; choose another folder with --out")
    storage.write_yaml(config, plain)


def write_status(out: Path, status: Mapping[str, Any]) -> None:
    """Replace the status in a run folder."""
    storage.write_json(out / STATUS, status)


def read_status(out: Path) -> dict[str, Any]:
    """The last status; empty before the first."""
    path = out / STATUS
    return storage.read_json(path) if path.exists() else {}
