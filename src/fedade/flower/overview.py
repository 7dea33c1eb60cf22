"""How a fleet is doing: in the status of its server, for people and for Prometheus."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.flower.endpoint import node_or_state
from fedade.flower.settings import MetricsSettings

STATUS = "flower.json"
_TALLIES = {
    "refused": ("refused", "refused_answers", "Answers and rows of a client that were refused."),
    "failed": ("failed turns", "failed_turns", "Turns that failed at a client."),
    "impostors": (
        "called themselves by another's name", "claims_of_other_names", "Claims of another's name by a client's key.",
    ),
    "scaled_back": ("updates scaled back", "scaled_back_updates", "Updates of a client that moved too far."),
    "quarantined": ("bad batches set aside", "bad_batches", "Batches that a client set aside."),
}  # fmt: skip
"""What is counted by client in a status: for people, and as a metric of this name and meaning."""


def write_status(out: Path, status: Mapping[str, Any]) -> None:
    storage.write_json(out / STATUS, status)


def read_status(out: Path) -> dict[str, Any]:
    """The last status; empty before the first."""
    path = out / STATUS
    return storage.read_json(path) if path.exists() else {}


def troubles(status: Mapping[str, Any]) -> list[str]:
    """What went wrong with single clients of a run that went on: one line a kind, with names and counts."""
    return [
        f"{words}: {', '.join(f'{client} {times}' for client, times in sorted(status[kind].items()))}"
        for kind, (words, _, _) in _TALLIES.items()
        if status.get(kind)
    ]


Cells = tuple[str, ...]
SHOWN = ("s", "learning_rate", "trust", "estimated_accuracy", "alarm", "accuracy_post", "waiting")
"""Measures that have a column, where clients tell them."""


def status_at(place: Path) -> dict[str, Any]:
    """The status in a run folder, or that of the client whose state folder it is."""
    if not place.is_dir():
        raise FedadeError(f"{place} does not exist; name a run's folder, or STATE-DIR/NAME of a client")
    place = place.resolve()
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
    # A name is whole in a narrow terminal, whatever becomes of the rest.
    columns = [Column(name, no_wrap=name == "client", overflow="fold") for name in columns_of(status)]
    # As plain text: it quotes clients, and what stands in square brackets would be markup.
    title, caption = Text(headline(status), "table.title"), Text("\n".join(notes_of(status)), "table.caption")
    table = Table(*columns, title=title, title_justify="left", caption=caption)
    for line in lines_of(status, time.time()):
        table.add_row(*map(Text, line))
    return table


prometheus: Any = OptionalModule("prometheus_client", "prometheus")
families: Any = OptionalModule("prometheus_client.metrics_core", "prometheus")
log = logging.getLogger("flwr.fedade")
Figures = Callable[[], Mapping[str, Any]]
"""How a run stands, as in `flower.json`."""
_PREFIX = "fedade_"
_MEMBERS = {
    "timestep": "The last timestep that a client opened.",
    "last_seen": "When a client's last answer came that counted, in seconds since 1970.",
    "away": "Whether a client is not waited for.",
}
_MEASURES = {
    "waiting": ("batches_waiting", "Batches of a client that came and were not taken, where it tells."),
    "estimated_accuracy": ("estimated_accuracy", "A client's accuracy as its monitor estimates it, where it tells."),
    "alarm": ("accuracy_alarm", "Whether a client's monitor raises its alarm, where it tells."),
}


class FleetCollector:
    """Reads the figures of a run whenever it is asked."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        figures = self._figures()
        members, gauge, counter = figures["members"], families.GaugeMetricFamily, families.CounterMetricFamily

        def by_client(kind: Any, name: str, words: str, values: Mapping[str, float]) -> Any:
            family = kind(f"{_PREFIX}client_{name}", words, labels=["client"])
            for client, value in values.items():
                family.add_metric([client], value)
            return family

        for key, words in _MEMBERS.items():
            yield by_client(gauge, key, words, {member["name"]: float(member[key]) for member in members})
        for key, (name, words) in _MEASURES.items():
            told = {one["name"]: one["measures"][key] for one in members if key in one["measures"]}
            yield by_client(gauge, name, words, told)
        for key, (_, name, words) in _TALLIES.items():
            yield by_client(counter, name, words, figures[key])
        words = "What a client tells of its last timestep."
        signals = gauge(f"{_PREFIX}client_signal", words, labels=["client", "signal"])
        for member in members:
            for signal, value in member["measures"].items():
                if signal not in _MEASURES:
                    signals.add_metric([member["name"], signal], value)
        yield signals
        taken = {"count_value": figures["turns"], "sum_value": figures["seconds"]}
        words = "Exchanges with clients, and how long they took."
        yield families.SummaryMetricFamily(f"{_PREFIX}exchange_seconds", words, **taken)
        yield counter(f"{_PREFIX}unanswered_turns", "Turns of clients that did not count.", figures["unanswered"])


@contextmanager
def metrics_at(settings: MetricsSettings | None, figures: Figures) -> Iterator[None]:
    """Answer Prometheus while the block lasts; without settings, nobody."""
    if settings is None:
        yield
        return
    registry = prometheus.CollectorRegistry()
    registry.register(FleetCollector(figures))
    try:
        server, thread = prometheus.start_http_server(settings.port, settings.host, registry)
    except OSError as error:
        raise FedadeError(
            f"flower.metrics: {settings.host}:{settings.port} cannot be listened on ({error}); choose another port"
        ) from error
    log.info("metrics for Prometheus at http://%s:%d/metrics", settings.host, settings.port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
