"""A table of numbers, free of any format."""

from dataclasses import dataclass

from fedade.reporting.paper import Published

NOTHING = "–"
"""What an empty cell shows."""


@dataclass(frozen=True)
class Column:
    """A heading, and how its numbers are printed."""

    name: str
    decimals: int = 2
    signed: bool = False
    least: float | None = None
    """Smaller numbers are printed as `<` this one."""


@dataclass(frozen=True)
class TableCell:
    """A number of ours beside the paper's; without one, `status` says why."""

    value: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    """A confidence interval."""
    count: int | None = None
    """On how many seeds, cells, scenarios or pairs the number rests."""
    paper: Published | None = None
    status: str = ""
    """`failed`, `missing`, `2 of 3 seeds`, `too few pairs`; nothing where all is well."""
    best: bool = False

    @property
    def difference(self) -> float | None:
        """Ours − the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper.mean


@dataclass(frozen=True)
class TableRow:
    """A name and one cell for every column."""

    name: str
    cells: tuple[TableCell, ...]
    oracle: bool = False

    @property
    def title(self) -> str:
        """The name; oracles are marked wherever they appear."""
        return f"{self.name} (oracle)" if self.oracle else self.name


@dataclass(frozen=True)
class Table:
    """A title, headings, rows and what a reader must know to read them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    corner: str = "method"
    """The heading of the rows' names."""


def parts(cell: TableCell, column: Column) -> tuple[str, ...]:
    """What a cell shows: ours alone, or ours, the paper's and the difference."""
    if cell.paper is None:
        return (_ours(cell, column),)
    difference = NOTHING if cell.difference is None else f"{cell.difference:+.1f}"
    return _ours(cell, column), f"{cell.paper.mean:.1f} ±{cell.paper.deviation:.1f}", difference


def _ours(cell: TableCell, column: Column) -> str:
    if cell.value is None:
        return cell.status or NOTHING
    shown = _number(cell.value, column)
    if column.least is not None and cell.value < column.least:
        shown = f"<{column.least:g}"
    if cell.deviation is not None:
        shown += f" ±{cell.deviation:.{column.decimals}f}"
    if cell.low is not None and cell.high is not None:
        shown += f" [{_number(cell.low, column)}, {_number(cell.high, column)}]"
    return f"{shown} ({cell.status})" if cell.status else shown


def _number(value: float, column: Column) -> str:
    return f"{value:+.{column.decimals}f}" if column.signed else f"{value:.{column.decimals}f}"
