"""The outcomes of a suite by what was asked, who answered, and with which seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedade.core.errors import FedadeError
from fedade.reporting.outcomes import COMMON, Label, Outcome
from fedade.reporting.results import Result

Key = tuple[tuple[str, Label], ...]
"""Some labels of a cell, in order."""


@dataclass(frozen=True)
class Entry:
    """A row in one scenario: what its seeds reached."""

    accuracies: tuple[float, ...]
    """Accuracies in percent, after adaptation, of the seeds that finished."""
    failed: int
    missing: int

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.accuracies)) if self.accuracies else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the population that the seeds are drawn from; one seed has none."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else None

    @property
    def complete(self) -> bool:
        return not self.failed and not self.missing


@dataclass(frozen=True)
class Grid:
    """Scenarios × rows × seeds, in the order of the outcomes; a place without an outcome is missing."""

    scenarios: tuple[Key, ...]
    rows: tuple[Key, ...]
    seeds: tuple[Label, ...]
    outcomes: Mapping[tuple[Key, Key, Label], Outcome]

    def finished(self, row: Key) -> dict[tuple[Key, Label], Result]:
        places = [(scenario, seed) for scenario in self.scenarios for seed in self.seeds]
        outcomes = {place: self.outcomes.get((place[0], row, place[1])) for place in places}
        return {place: outcome.result for place, outcome in outcomes.items() if outcome and outcome.result}

    def entry(self, scenario: Key, row: Key) -> Entry:
        outcomes = [self.outcomes.get((scenario, row, seed)) for seed in self.seeds]
        accuracies = tuple(100 * known.result.accuracy_post for known in outcomes if known and known.result)
        failed = sum(outcome is not None and outcome.failure is not None for outcome in outcomes)
        return Entry(accuracies, failed, len(self.seeds) - len(accuracies) - failed)

    def accuracies(self, row: Key) -> dict[tuple[Key, Label], float]:
        return {place: 100 * result.accuracy_post for place, result in self.finished(row).items()}

    @cached_property
    def oracles(self) -> frozenset[Key]:
        return frozenset(row for row in self.rows if any(result.oracle for result in self.finished(row).values()))

    @cached_property
    def ranked(self) -> tuple[Key, ...]:
        """Rows that finished something and are no oracles."""
        return tuple(row for row in self.rows if row not in self.oracles and self.finished(row))


def grid(outcomes: Iterable[Outcome]) -> Grid:
    placed: dict[tuple[Key, Key, Label], Outcome] = {}
    declared: dict[str, bool] = {}  # whether a label names rows
    for outcome in outcomes:
        place, own = (scenario_of(outcome), row_of(outcome), outcome.labels["seed"]), _row_labels(outcome)
        for label in outcome.labels:
            if declared.setdefault(label, label in own) != (label in own):
                raise FedadeError(
                    f"label {label!r} names a row in one cell and a scenario in another; declare it in all or none"
                )
        if place in placed:
            raise FedadeError(f"two outcomes for {dict(outcome.labels)}; give every cell once")
        placed[place] = outcome
    return Grid(
        tuple(dict.fromkeys(scenario for scenario, _, _ in placed)),
        tuple(dict.fromkeys(row for _, row, _ in placed)),
        tuple(dict.fromkeys(seed for _, _, seed in placed)),
        placed,
    )


def scenario_of(outcome: Outcome) -> Key:
    """What was asked: the data, their drift and the deployed model."""
    return (*benchmark_of(outcome), *_chosen(outcome, ("schedule",)))


def benchmark_of(outcome: Outcome) -> Key:
    """A scenario without its schedule: the data, the kind of shift, the model's pre-training, what a suite varies."""
    varied = sorted(set(outcome.labels) - {*COMMON, *_row_labels(outcome)})
    return _chosen(outcome, ("dataset", "kind", "source", *varied))


def row_of(outcome: Outcome) -> Key:
    """Who answered: the method and its settings."""
    return _chosen(outcome, ("row", "method", *_row_labels(outcome)))


def _row_labels(outcome: Outcome) -> tuple[str, ...]:
    """Labels that name the row besides `row` and `method`."""
    common = [label for label in outcome.row_labels if label in COMMON]
    if common:
        raise FedadeError(f"label {common[0]!r} of a cell has a place of its own; take it out of its row_labels")
    return outcome.row_labels


def _chosen(outcome: Outcome, labels: Sequence[str]) -> Key:
    return tuple((label, outcome.labels[label]) for label in labels if label in outcome.labels)
