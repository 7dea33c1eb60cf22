"""Parts of a suite: `--only key=value`."""

from collections.abc import Sequence

from fedade.core.errors import FedadeError
from fedade.experiments.cell import Cell
from fedade.reporting.outcomes import Label


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
