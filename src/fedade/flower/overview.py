"""How a fleet is doing, for people: from the status of its server, or of one node."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from fedade.core.errors import FedadeError
from fedade.flower.endpoint import node_or_state
from fedade.flower.run_folder import STATUS, read_status, troubles

Cells = tuple[str, ...]

SHOWN = ("s", "learning_rate", "trust", "estimated_accuracy", "alarm", "accuracy_post", "waiting")
"""Measures that have a column, where clients tell them."""


def status_at(place: Path) -> dict[str, Any]:
    """The status in a run folder, or that of the client whose state folder it is."""
    if (place / STATUS).exists():
        return read_status(place)
    with node_or_state(place) as client:
        return client.status()


def headline(status: Mapping[str, Any]) -> str:
    """Where a run or a client stands, in one line."""
    if "error" in status:
        return f"stopped: {status['error']}"
    if "client" in status:
        waiting = "" if status.get("waiting") is None else f", {status['waiting']} batches wait"
        named = f"{status['client']}: timestep {status.get('timestep', 0)}{waiting}, {status['requests']} requests"
        return f"{named}{estimated(status.get('estimate') or {})}"
    end = "" if status.get("timesteps") is None else f" of {status['timesteps']}"
    state = "finished" if status.get("finished") else f"timestep {status.get('timestep', 0)}{end}"
    return f"{state}, {status.get('turns', 0)} turns, {status.get('unanswered', 0)} turns unanswered"


def estimated(estimate: Mapping[str, Any]) -> str:
    """What a client's monitor says of its accuracy."""
    if "estimated_accuracy" not in estimate:
        return ""
    low, high = estimate["accuracy_interval"]
    reason = f"; alarm: {estimate['alarm_reason']}" if estimate.get("alarm") else ""
    return f", estimated accuracy {estimate['estimated_accuracy']:.0%} ({low:.0%} to {high:.0%}){reason}"


def columns_of(status: Mapping[str, Any]) -> Cells:
    """The columns of the table: fixed ones, and measures that some client tells."""
    told = {name for member in status.get("members", ()) for name in member["measures"]}
    return ("client", "timestep", "last seen", *(name for name in SHOWN if name in told), "trouble")


def lines_of(status: Mapping[str, Any], now: float) -> list[Cells]:
    """One line a client."""
    measures = columns_of(status)[3:-1]
    return [
        (
            member["name"],
            str(member["timestep"]),
            ago(member["last_seen"], now) + (", away" if member["away"] else ""),
            *(f"{member['measures'][name]:.3g}" if name in member["measures"] else "" for name in measures),
            member["trouble"],
        )
        for member in status.get("members", ())
    ]


def notes_of(status: Mapping[str, Any]) -> Sequence[str]:
    """What went wrong with single clients, and batches that a node set aside."""
    if "client" in status:
        return [f"set aside: {name}: {reason}" for name, reason in status.get("quarantined", {}).items()]
    return troubles(status)


def ago(moment: float, now: float) -> str:
    """A time as people say it."""
    if not moment:
        return "never"
    seconds = max(0.0, now - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def table_of(status: Mapping[str, Any]) -> Table:
    """A table for the terminal."""
    # A name is whole in a narrow terminal, whatever becomes of the rest.
    columns = [Column(name, no_wrap=name == "client", overflow="fold") for name in columns_of(status)]
    table = Table(*columns, title=headline(status), title_justify="left", caption="\n".join(notes_of(status)))
    for line in lines_of(status, time.time()):
        table.add_row(*line)
    return table


def refuse_nothing(place: Path) -> None:
    """Refuse a folder that is neither a run's nor a client's."""
    if not place.is_dir():
        raise FedadeError(f"{place} does not exist; name a run's folder, or STATE-DIR/NAME of a client")
