"""Finished cells as lines of a file of results, and a folder's lines added to such a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedade.core.errors import FedadeError
from fedade.reporting.result_lines import (
    CHANGED,
    Line,
    has_other_settings,
    merged,
    of_other_trainings,
    place_of,
    read_lines,
    write_lines,
)
from fedade.runner.store import Record, records

FACTS = {
    "stream": "scenario.stream", "clients": "scenario.num_clients", "timesteps": "scenario.num_timesteps",
    "samples": "scenario.samples", "alpha": "scenario.alpha", "model": "scenario.model",
    "epochs": "scenario.pretraining.epochs", "reference": "scenario.reference",
    "reference_size": "scenario.reference_size", "rounds": "protocol.rounds",
    "participation": "protocol.participation",
}  # fmt: skip
"""Columns that every line has, because tables are chosen by them, and the settings that they hold."""


def line_of(record: Record) -> Line:
    cell, settings, origin = record.cell, record.cell.experiment.as_plain(), record.provenance
    facts: dict[str, Any] = {name: _setting(settings, path) for name, path in FACTS.items()}
    facts["model"] = str(facts["model"]).split("/")[-1]  # without the folder of a machine
    measures = {} if record.status.result is None else record.status.result.asdict()
    measures |= {name: f"{value:.6g}" for name, value in measures.pop("answers", {}).items()}
    commit = f"{(origin.get('commit') or '')[:10]}{CHANGED if origin.get('dirty') else ''}"
    line: dict[str, object] = {
        **facts,
        **measures,
        **cell.labels,
        "cell": record.path.name,
        "weights": record.identity.get("weights"),
        "commit": commit,
        "device": origin.get("device"),
        "precision": cell.experiment.execution.precision,
        "started": origin.get("started"),
        "row_labels": " ".join(cell.row_labels),
        "status": record.status.state,
        "reason": record.status.reason,
    }
    return {name: "" if value is None else str(value) for name, value in line.items()}


class Added(NamedTuple):
    """What came of adding a folder to a file of results."""

    path: Path
    cells: int
    replaced: int
    """Lines that were there with other settings or of other code."""
    unread: int
    """Finished cells that are left out, because their settings or their method are not to be had here."""
    incomparable: list[tuple[str, ...]]
    """Rows of one scenario and seed that were run with different weights."""


def add_results(folder: Path, results: Path, name: str | None = None) -> Added:
    """Add the finished cells of a run or suite to `results/NAME.csv`, which is named after the suite. Adding again
    changes nothing, and cells that the folder does not hold stay as they are."""
    lines = [line_of(record) for record in records(folder) if record.status.state == "done"]
    if not lines:
        raise FedadeError(f"{folder} holds no finished cell; run `fedade bench SUITE --out {folder}` first")
    path = results / f"{name or lines[0]['suite']}.csv"
    kept = [{key: value for key, value in line.items() if key not in ("status", "reason")} for line in lines]
    known = read_lines(path) if path.exists() else []
    together = {place_of(line): line for line in merged(known, kept)}
    write_lines(path, list(together.values()))
    replaced = sum(has_other_settings(line, together.get(place_of(line), line)) for line in known)
    finished = [found for found in folder.glob("cells/*/result.json") if ".corrupt-" not in found.parent.name]
    return Added(path, len(lines), replaced, len(finished) - len(lines), of_other_trainings(together.values()))


def _setting(settings: Mapping[str, Any], path: str) -> Any:
    """The setting under a dotted name; None where there is no such setting."""
    key, _, below = path.partition(".")
    return _setting(settings.get(key) or {}, below) if below else settings.get(key)
