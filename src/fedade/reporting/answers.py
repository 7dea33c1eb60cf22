"""How good answers are beyond their accuracy: calibration, whom they leave behind, what the model knows of it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from fedade.core import trace
from fedade.reporting.rendering import Column, Table, TableCell, TableRow

MOST_SEVERE = 5
"""Corruptions have severities up to this one."""
_COLUMNS: Mapping[str, Column] = {
    "nll": Column("NLL", ".3f"), "ece": Column("ECE, %", ".1f"), "brier": Column("Brier", ".3f"),
    "expected": Column("expected", ".1f"), "off_by": Column("off by", ".1f"),
    "worst_client": Column("worst client", ".1f"), "worst_class": Column("worst class", ".1f"),
    "follows_drift": Column("signal and drift", "+.2f"),
}  # fmt: skip
NAMES = tuple(_COLUMNS)
"""Measures of answers, by the names they have in files."""
_BEST_OF: Mapping[str, Callable[[list[float]], float]] = {
    "nll": min, "ece": min, "brier": min, "off_by": min, "worst_client": max, "worst_class": max,
}  # fmt: skip
"""Which value is the best; the others have none."""
_NOTE = (
    "Of the answers after adaptation. NLL: mean negative logarithm of the right class's probability. ECE: how far "
    "confidence is from accuracy, over ten bins of confidence. Brier: mean squared distance to the right answer, "
    "0 to 2. Expected: mean confidence in percent, the accuracy that the model itself expects; off by: how far that is "
    "from the true accuracy of a batch, on average. Worst client: its accuracy over all its timesteps; worst class: "
    "the part of its samples that is recognised. Signal and drift: rank correlation of S with how far a client's data "
    "really moved since the last timestep."
)


def answer_measures(table: pa.Table) -> dict[str, float]:
    """What one track's trace tells, as far as it has the columns; percent where the table of it says percent."""
    found: dict[str, float | None] = {"follows_drift": _rank_correlation(table)}
    if {"confidence", "nll", "brier"} <= set(table.column_names):
        expected, accuracy = trace.column(table, "confidence"), trace.column(table, "accuracy_post")
        found |= {name: trace.mean(trace.column(table, name)) for name in ("nll", "brier")}
        shares = {
            "expected": trace.mean(expected),
            "off_by": trace.mean(np.abs(expected - accuracy)),
            "ece": calibration_error(*calibration_bins(table)),
            "worst_client": _least(client_accuracies(table)),
            "worst_class": _least(class_accuracies(table)),
        }
        found |= {name: None if share is None else 100 * share for name, share in shares.items()}
    return {name: found[name] for name in _COLUMNS if found.get(name) is not None}  # type: ignore[misc]


def answer_table(rows: Mapping[str, Mapping[str, float]], oracles: Collection[str], title: str = "") -> Table | None:
    """One row per method; nothing where no method has anything to tell."""
    known = [name for name in _COLUMNS if any(name in measures for measures in rows.values())]
    if not known:
        return None
    ranked = [measures for method, measures in rows.items() if method not in oracles]
    values = {name: [measures[name] for measures in ranked if name in measures] for name in known}
    best = {name: _BEST_OF[name](values[name]) if name in _BEST_OF and values[name] else None for name in known}

    def row(method: str, measures: Mapping[str, float]) -> TableRow:
        own, oracle = [(measures.get(name), best[name]) for name in known], method in oracles
        cells = [TableCell(value, best=not oracle and value is not None and value == top) for value, top in own]
        return TableRow(method, tuple(cells), oracle)

    heading = f"{title}: the answers" if title else "The answers"
    return Table(heading, tuple(_COLUMNS[name] for name in known), tuple(row(*item) for item in rows.items()), (_NOTE,))


def calibration_bins(table: pa.Table) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Answers, right answers and summed confidence by bins of confidence, over all rows."""
    names = ("confidence_samples", "confidence_hits", "confidence_sums")
    samples, hits, sums = (np.nansum(trace.column(table, name), 0) for name in names)
    return samples, hits, sums


def calibration_error(samples: NDArray[Any], hits: NDArray[Any], sums: NDArray[Any]) -> float | None:
    """ECE: mean distance of confidence and accuracy over bins, weighted by their samples."""
    return float(np.abs(hits - sums).sum() / samples.sum()) if samples.sum() else None


def class_accuracies(table: pa.Table) -> NDArray[Any]:
    """The part of every class's samples that is recognised, `[K]`; NaN for a class that never came."""
    samples, hits = (np.nansum(trace.column(table, name), 0) for name in ("class_samples", "class_hits"))
    return _parts(hits, samples)


def client_accuracies(table: pa.Table) -> NDArray[Any]:
    """Mean accuracy of every client over its timesteps, `[C]`; NaN where it is not known."""
    accuracy = trace.column(table, "accuracy_post")
    clients, places = np.unique(trace.column(table, "client"), return_inverse=True)
    known = np.isfinite(accuracy)
    sums, counts = (np.bincount(places[known], weights, len(clients)) for weights in (accuracy[known], None))
    return _parts(sums, counts)


def true_drift(table: pa.Table) -> NDArray[Any]:
    """How far each row's client has moved since its last timestep; NaN at its first. Half the L1 distance of true class
    frequencies, and the change of the corruption's severity as a part of the most."""
    clients, times = trace.column(table, "client"), trace.column(table, "timestep")
    order = np.lexsort((times, clients))
    priors, severity = trace.column(table, "true_prior")[order], trace.column(table, "severity")[order].astype(float)
    moved = 0.5 * np.abs(np.diff(priors, axis=0)).sum(1) + np.abs(np.diff(severity)) / MOST_SEVERE
    follows = (np.diff(clients[order]) == 0) & (np.diff(times[order]) == 1)
    drift = np.full(len(table), np.nan)
    drift[order[1:]] = np.where(follows, moved, np.nan)
    return drift


def _rank_correlation(table: pa.Table) -> float | None:
    """Of the combined signal and the true drift; None where either never changes."""
    if not {"s", "true_prior", "severity"} <= set(table.column_names):
        return None
    signal, drift = trace.column(table, "s").astype(float), true_drift(table)
    known = np.isfinite(signal) & np.isfinite(drift)
    signal, drift = np.round(signal[known], 6), np.round(drift[known], 6)  # float arithmetic is no drift
    if known.sum() < 3 or np.ptp(signal) == 0 or np.ptp(drift) == 0:
        return None
    return float(stats.spearmanr(signal, drift).statistic)


def _parts(of: NDArray[Any], whole: NDArray[Any]) -> NDArray[Any]:
    """One divided by the other; NaN where there is nothing to divide by."""
    parts: NDArray[Any] = np.divide(of, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return parts


def _least(values: NDArray[Any]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.min()) if len(known) else None
