"""Results as the lines of a CSV file: what was run, what it reached, and where that came from. A pivot has them by row
and column, with means over whatever else tells them apart."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.reporting import answers, names
from fedade.reporting.comparison import average_ranks, share_over_groups
from fedade.reporting.outcomes import COMMON, Label, Outcome
from fedade.reporting.results import Result

Line = Mapping[str, str]
"""A cell and a seed; or several seeds, such as `0 1 2`, where only their mean and deviation are known."""
MEASURES = (
    "accuracy_post", "accuracy_pre", "accuracy_fresh", "deviation", "learning_rate_mean", "seconds", "bytes_sent",
    "oracle", *answers.NAMES,
)  # fmt: skip
ORIGIN = ("cell", "weights", "commit", "device", "precision", "started", "row_labels", "status", "reason")
"""Fingerprints of settings and deployed weights, code, machine and time; which labels name the row; how it ended."""
CHANGED = "+changes"
"""What a commit's name ends with where the code had changes besides."""
ScenarioLabels = frozenset[tuple[str, str]]
ScenarioSeed = tuple[ScenarioLabels, int]


def labels_of(line: Line) -> dict[str, str]:
    """What a line is about: everything that is neither measured nor says where it came from."""
    return {name: value for name, value in line.items() if value and name not in (*MEASURES, *ORIGIN)}


def seeds_of(line: Line) -> list[int]:
    """Its seed, or those of which only the mean is known."""
    return [int(seed) for seed in line["seed"].split()]


def read_lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise FedadeError(f"cannot read {path}: {error.strerror}; see what is there with `ls {path.parent}`") from error


def as_csv(lines: Sequence[Line]) -> str:
    """Common labels first, then others by name, measures and origin."""
    there = {name for line in lines for name in line}
    others = sorted(there - {*COMMON, *MEASURES, *ORIGIN})
    text = io.StringIO()
    columns = [name for name in (*COMMON, *others, *MEASURES, *ORIGIN) if name in there]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def place_of(line: Line) -> frozenset[tuple[str, str]]:
    """What tells a line from every other of its file."""
    return frozenset(labels_of(line).items())


def has_other_settings(line: Line, other: Line) -> bool:
    return bool(line.get("cell") and other.get("cell")) and line["cell"] != other["cell"]


def merged(known: Iterable[Line], added: Iterable[Line]) -> list[Line]:
    """The cells of both, in one order whatever came first; of two lines for one cell the one that was started last. A
    mean over seeds goes when each of its seeds has a line of its own."""
    kept: dict[frozenset[tuple[str, str]], Line] = {}
    for line in (*known, *added):
        place = place_of(line)
        other = kept.setdefault(place, line)
        # With changes that no commit tells of, the same settings may have had another fingerprint.
        same_code = line.get("commit") == other.get("commit") and not line.get("commit", "").endswith(CHANGED)
        if same_code and has_other_settings(line, other):
            raise FedadeError(
                f"{', '.join(labels_of(line).values())}: cells {other['cell']} and {line['cell']} of one commit have "
                "the same labels and other settings; keep one of them, or give its row another name"
            )
        if line.get("started", "") >= other.get("started", ""):
            kept[place] = line
    alone = {place for place, line in kept.items() if len(seeds_of(line)) == 1}
    chosen = [
        line
        for place, line in kept.items()
        if place in alone or not all(place_of({**line, "seed": str(seed)}) in alone for seed in seeds_of(line))
    ]
    return sorted(chosen, key=_order)


def of_other_trainings(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """Rows of one scenario and seed that were run with different deployed weights, and so cannot be compared: another
    machine may train another model from the same settings."""
    met: dict[ScenarioSeed, dict[str, dict[str, None]]] = {}
    for line in lines:
        for seed in seeds_of(line) if line.get("weights") else ():
            met.setdefault((_scenario(line), seed), {}).setdefault(line["weights"], {})[line["row"]] = None
    return [tuple(row for rows in weights.values() for row in rows) for weights in met.values() if len(weights) > 1]


def _order(line: Line) -> tuple[object, ...]:
    labels = labels_of(line)
    others = sorted(set(labels) - {*COMMON})
    first = [names.place(label, labels.get(label, "")) for label in COMMON if label != "seed"]
    return (*first, [(label, names.place(label, labels[label])) for label in others], seeds_of(line))


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    storage.write_bytes(path, as_csv(lines).encode())


def outcome(line: Line) -> Outcome:
    """A line as tables of suites take it."""
    labels: dict[str, Label] = {**labels_of(line), "seed": int(line["seed"])}
    result = Result(
        method=line["method"],
        seed=int(line["seed"]),
        accuracy_post=float(line["accuracy_post"]),
        accuracy_pre=float(line.get("accuracy_pre") or "nan"),
        learning_rate_mean=float(line["learning_rate_mean"]) if line.get("learning_rate_mean") else None,
        seconds=float(line.get("seconds") or "nan"),
        bytes_sent=int(line.get("bytes_sent") or 0),
        oracle=line.get("oracle") == "True",
    )
    return Outcome(labels, result, row_labels=tuple(line.get("row_labels", "").split()))


class Measured(NamedTuple):
    """What one row reached in one column."""

    values: Mapping[ScenarioSeed, float]
    """Accuracies in percent; a mean over seeds stands for each of them."""
    deviation: float | None
    """Standard deviation over seeds, where there are several."""
    labels: Mapping[str, str]
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
        compared = (row, "source", "oracle-prior")
        share = share_over_groups([self.values(name, column) for name in compared] for column in columns).share
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
