"""The fleet as Prometheus sees it: what `flower.json` tells after every timestep, at any moment."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.flower.settings import MetricsSettings

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
_TALLIES = {
    "refused": ("refused_answers", "Answers and rows of a client that were refused."),
    "failed": ("failed_turns", "Turns that failed at a client."),
    "quarantined": ("bad_batches", "Batches that a client set aside."),
    "scaled_back": ("scaled_back_updates", "Updates of a client that moved too far."),
    "impostors": ("claims_of_other_names", "Claims of another's name by a client's key."),
}


class FleetCollector:
    """Reads the figures of a run whenever it is asked."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        """All metrics."""
        figures = self._figures()
        members = figures["members"]
        for key, words in _MEMBERS.items():
            yield self._by_client(key, words, {member["name"]: float(member[key]) for member in members})
        for key, (name, words) in _MEASURES.items():
            told = {one["name"]: one["measures"][key] for one in members if key in one["measures"]}
            yield self._by_client(name, words, told)
        signals = families.GaugeMetricFamily(
            f"{_PREFIX}client_signal", "What a client tells of its last timestep.", labels=["client", "signal"]
        )
        for member in members:
            for signal, value in member["measures"].items():
                if signal not in _MEASURES:
                    signals.add_metric([member["name"], signal], value)
        yield signals
        for key, (name, words) in _TALLIES.items():
            tally = families.CounterMetricFamily(f"{_PREFIX}client_{name}", words, labels=["client"])
            for client, times in dict(figures[key]).items():
                tally.add_metric([client], times)
            yield tally
        yield families.SummaryMetricFamily(
            f"{_PREFIX}exchange_seconds",
            "Exchanges with clients, and how long they took.",
            count_value=figures["turns"],
            sum_value=figures["seconds"],
        )
        yield families.CounterMetricFamily(
            f"{_PREFIX}unanswered_turns", "Turns of clients that did not count.", figures["unanswered"]
        )

    def _by_client(self, name: str, words: str, values: Mapping[str, float]) -> Any:
        gauge = families.GaugeMetricFamily(f"{_PREFIX}client_{name}", words, labels=["client"])
        for client, value in values.items():
            gauge.add_metric([client], value)
        return gauge


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
