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


def troubles(status: Mapping[str, Any]) -> list[str]:
    """What went wrong with single clients of a run that went on: one line a kind, with names and counts."""
    kinds = {
        "refused": "refused",
        "failed": "failed turns",
        "impostors": "called themselves by another's name",
        "scaled_back": "updates scaled back",
        "quarantined": "bad batches set aside",
    }
    return [
        f"{words}: {', '.join(f'{client} {times}' for client, times in sorted(status[kind].items()))}"
        for kind, words in kinds.items()
        if status.get(kind)
    ]
