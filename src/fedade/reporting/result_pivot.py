"""Lines of results by row and column, with means over whatever else tells them apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedade.reporting.comparison import average_ranks, oracle_share
from fedade.reporting.result_lines import Line, labels_of, seeds_of

ScenarioLabels = frozenset[tuple[str, str]]
ScenarioSeed = tuple[ScenarioLabels, int]
"""A scenario and a seed."""


@dataclass(frozen=True)
class Measured:
    """What one row reached in one column."""

    values: Mapping[ScenarioSeed, float]
    """Accuracies in percent; a mean over seeds stands for each of them."""
    deviation: float | None
    """Standard deviation over seeds, where there are several."""
    labels: Mapping[str, str]
    """Labels of one of its lines."""
    oracle: bool


class Pivot:
    """What every row reached in every column."""

    def __init__(
        self, lines: Iterable[Line], row: Callable[[Line], str], column: Callable[[Line], str], value: str
    ) -> None:
        groups: dict[tuple[str, str], list[Line]] = {}
        for line in lines:
            if line.get(value):
                groups.setdefault((row(line), column(line)), []).append(line)
        self.rows = list(dict.fromkeys(name for name, _ in groups))
        self.columns = list(dict.fromkeys(name for _, name in groups))
        self.measured = {place: _measured(members, value) for place, members in groups.items()}

    def oracle(self, row: str) -> bool:
        return any(measured.oracle for (name, _), measured in self.measured.items() if name == row)

    def seeds(self, row: str) -> set[int]:
        return {seed for (name, _), measured in self.measured.items() if name == row for _, seed in measured.values}

    def cases(self, rows: Iterable[str], column: str) -> set[ScenarioSeed]:
        """What any of the rows was measured on in a column."""
        return {case for row in rows for case in self.values(row, column)}

    def values(self, row: str, column: str) -> Mapping[ScenarioSeed, float]:
        return self.measured[row, column].values if (row, column) in self.measured else {}

    def mean(self, row: str, column: str) -> float | None:
        values = self.values(row, column)
        return float(np.mean(list(values.values()))) if values else None

    def ranks(self, rows: Iterable[str]) -> dict[str, float]:
        """Average rank over scenarios, each by the mean of a row's seeds, among rows that have every scenario."""
        values: dict[str, dict[ScenarioLabels, list[float]]] = {row: {} for row in rows}
        for (row, _), measured in self.measured.items():
            for (scenario, _), value in measured.values.items() if row in values else ():
                values[row].setdefault(scenario, []).append(value)
        every = {scenario for own in values.values() for scenario in own}
        whole = [row for row, own in values.items() if own.keys() == every]
        return average_ranks([{row: float(np.mean(values[row][scenario])) for row in whole} for scenario in every])

    def share(self, row: str, columns: Iterable[str]) -> float | None:
        """The share of the oracle's gain in percent, over cases that the row, `source` and `oracle-prior` have."""
        triples = []
        for column in columns:
            rows = [self.values(name, column) for name in (row, "source", "oracle-prior")]
            if common := set(rows[0]).intersection(*rows[1:]):
                accuracy, source, oracle = (
                    float(np.mean([row_values[case] for case in common])) for row_values in rows
                )
                triples.append((accuracy, source, oracle))
        share = oracle_share(triples).share
        return None if share is None else 100 * share


def _measured(lines: Sequence[Line], value: str) -> Measured:
    """A line that holds the mean of several seeds counts for each of them, also where some have lines of their own."""
    scale = 100 if value.startswith("accuracy") else 1
    values: dict[ScenarioSeed, float] = {}
    for line in sorted(lines, key=lambda line: len(seeds_of(line))):
        values |= {(_scenario(line), seed): scale * float(line[value]) for seed in seeds_of(line)}
    seeds = {seed for _, seed in values}
    deviation = None
    if all(len(seeds_of(line)) == 1 for line in lines) and len(seeds) > 1:
        means = [np.mean([value for (_, seed), value in values.items() if seed == own]) for own in seeds]
        deviation = float(np.std(means, ddof=1))
    elif len(lines) == 1 and lines[0].get("deviation"):
        deviation = scale * float(lines[0]["deviation"])
    return Measured(values, deviation, labels_of(lines[0]), any(line.get("oracle") == "True" for line in lines))


def _scenario(line: Line) -> ScenarioLabels:
    apart = {"suite", "row", "method", "seed", *line.get("row_labels", "").split()}
    return frozenset(pair for pair in labels_of(line).items() if pair[0] not in apart)
