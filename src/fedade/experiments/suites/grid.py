"""Suites as lists of cells: rows on presets, schedules and seeds; rows that several tables have; `--only key=value`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedade.core.errors import FedadeError
from fedade.experiments.cell import Cell, labels_of
from fedade.experiments.presets import PRESETS, PRINTED, PRINTED_TEXTS
from fedade.experiments.settings import MethodEntry, Settings, experiment_from, merged
from fedade.reporting.names import METHODS
from fedade.reporting.outcomes import Label

PAPER_SCHEDULES = ("lin", "sin", "squ", "ber")
"""The schedules of the paper's tables, in their order; one that is added elsewhere enlarges no table."""


@dataclass(frozen=True)
class SuiteRow:
    """A line of a table: its name there, the method, and what is set for it alone."""

    name: str
    method: str
    settings: Settings = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)


def plain_rows(*methods: str) -> tuple[SuiteRow, ...]:
    """Methods under their own names, as they are."""
    return tuple(SuiteRow(method, method) for method in methods)


def tuned_rows(*rows: SuiteRow) -> tuple[SuiteRow, ...]:
    """Methods that have a rate, with as many trials for it as Fed-ADE has; their plain rows have the published one."""
    return tuple(SuiteRow(f"{row.name} (tuned)", row.method, {"constants": "calibrated"}) for row in rows)


@dataclass(frozen=True)
class Block:
    """Some rows on some presets, with settings of these changed."""

    presets: Sequence[str]
    rows: Sequence[SuiteRow]
    schedules: Sequence[str] = PAPER_SCHEDULES
    changes: Settings = field(default_factory=dict)
    varied: Mapping[str, Label] = field(default_factory=dict)
    """Labels that tell its scenarios from those of the suite's other blocks."""


@dataclass(frozen=True)
class Suite:
    """A table or a figure as a list of cells."""

    name: str
    summary: str
    blocks: Sequence[Block]
    seeds: tuple[int, ...] = (0, 1, 2)
    """Which seeds, unless others are asked for."""

    def cells(self, seeds: Sequence[int]) -> list[Cell]:
        """Every row on every preset, schedule and seed of its block; cells of one scenario are neighbours."""
        return [
            _cell(self.name, below, schedule, row, seed, block.varied)
            for block in self.blocks
            for below in (merged(PRESETS[preset](), block.changes) for preset in block.presets)
            for schedule in block.schedules
            for seed in seeds
            for row in block.rows
        ]


def _cell(suite: str, below: Settings, schedule: str, row: SuiteRow, seed: int, varied: Mapping[str, Label]) -> Cell:
    entry = MethodEntry(name=row.name, method=row.method, settings=row.settings)
    of_method = {name: settings for name, settings in below.get("method", {}).items() if name == row.method}
    own = {"scenario": {"schedule": schedule}, "methods": (entry,), "seeds": (seed,)}
    experiment = experiment_from(merged({**below, "method": of_method}, own))
    labels = labels_of(suite, experiment, entry, seed)
    place = " ".join(str(labels[name]) for name in ("dataset", "kind", "source", "schedule", "row"))
    besides = {**row.labels, **varied}
    title = ", ".join([place, *(f"{name} {value}" for name, value in besides.items()), f"seed {seed}"])
    return Cell({**labels, **besides}, experiment, title, tuple(row.labels))


ROWS = {method: SuiteRow(name, method) for method, name in METHODS.items()}
"""The ten methods of the paper's first table, by their registered names."""

PAPER = tuple(ROWS.values())
"""The ten methods in the paper's order."""

PRINTED_ROW = SuiteRow("Fed-ADE (as printed)", "fed-ade", PRINTED)
PRINTED_TEXTS_ROW = SuiteRow("Fed-ADE (as printed)", "fed-ade", PRINTED_TEXTS)
TUNED = tuned_rows(*(ROWS[name] for name in ("fed-ccfa", "fed-poe", "uda", "unida")))
"""The paper's other methods that have a rate."""

YARDSTICKS = plain_rows("source", "oracle-prior")
"""No adaptation, and what knowing the true class frequencies would give: most gains lie between the two."""

EXTRA = (
    *YARDSTICKS,
    *plain_rows("prior-bbse", "prior-em", "flh-ftl", "bn-adapt", "tent", "fed-ade-release", "fix-lr-mean"),
    *plain_rows("shuffled-lr", "oracle-finetune"),
)
"""Rows that the paper does not have, without which its table cannot be read."""


def select(cells: Sequence[Cell], filters: Sequence[str]) -> list[Cell]:
    """Cells whose labels have one of the values of every key; values of one key are alternatives."""
    wanted = _wanted(filters)
    for key, values in wanted.items():
        _require_known(cells, key, values)

    def has(cell: Cell, key: str, values: Sequence[str]) -> bool:
        return key in cell.labels and any(_matches(cell.labels[key], value) for value in values)

    chosen = [cell for cell in cells if all(has(cell, *pair) for pair in wanted.items())]
    if filters and not chosen:
        both = " and ".join(f"{key}={','.join(values)}" for key, values in wanted.items())
        raise FedadeError(f"--only: no cell has {both}; leave one of them out")
    return chosen


def _wanted(filters: Sequence[str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for assignment in filters:
        key, equals, values = assignment.partition("=")
        if not key or not equals or not values:
            raise FedadeError(f"--only {assignment}: expected key=value, for example --only dataset=cifar10")
        wanted.setdefault(key.strip(), []).extend(value.strip() for value in values.split(","))
    return wanted


def _require_known(cells: Sequence[Cell], key: str, values: Sequence[str]) -> None:
    keys = list(dict.fromkeys(name for cell in cells for name in cell.labels))
    if key not in keys:
        raise FedadeError(f"--only {key}: cells have no such label; choose from {', '.join(keys) or 'none: no cells'}")
    known = list(dict.fromkeys(cell.labels[key] for cell in cells if key in cell.labels))
    for value in values:
        if not any(_matches(label, value) for label in known):
            raise FedadeError(f"--only {key}={value}: no cell has it; choose from {', '.join(map(str, known))}")


def _matches(label: Label, text: str) -> bool:
    """Numbers as numbers, so that 5e-6 and 0.000005 are the same."""
    if isinstance(label, str):
        return label == text
    try:
        return float(text) == label
    except ValueError:
        return False
