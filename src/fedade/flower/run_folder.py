"""How a Flower run fares, for whoever started it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedade.core import storage

STATUS = "flower.json"


def write_status(out: Path, status: Mapping[str, Any]) -> None:
    """Replace the status in a run folder."""
    storage.write_json(out / STATUS, status)


def read_status(out: Path) -> dict[str, Any]:
    """The last status; empty before the first."""
    path = out / STATUS
    return storage.read_json(path) if path.exists() else {}
