"""Results as the lines of a CSV file: what was run, what it reached, and where that came from."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.reporting import names
from fedade.reporting.outcomes import COMMON, Label, Outcome
from fedade.reporting.results import Result

Line = Mapping[str, str]
"""A cell and a seed; or several seeds, such as `0 1 2`, where only their mean and deviation are known."""

MEASURES = (
    "accuracy_post", "accuracy_pre", "accuracy_fresh", "deviation", "learning_rate_mean", "seconds", "bytes_sent",
    "oracle",
)  # fmt: skip
ORIGIN = ("cell", "commit", "device", "precision", "started", "row_labels", "status", "reason")
"""Settings' fingerprint, code, machine and time; which labels name the row; how the cell ended."""

CHANGED = "+changes"
"""What a commit's name ends with where the code had changes besides."""


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
    """The cells of both, in one order whatever came first; of two lines for one cell the one that was started last.

    A mean over seeds goes when each of its seeds has a line of its own.
    """
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
    chosen = [line for place, line in kept.items() if place in alone or not _each_seed(line) <= alone]
    return sorted(chosen, key=_order)


def _each_seed(line: Line) -> set[frozenset[tuple[str, str]]]:
    return {place_of({**line, "seed": str(seed)}) for seed in seeds_of(line)}


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
