"""A table of numbers, free of any format."""

from dataclasses import dataclass

from fedade.reporting.paper import Published

NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A heading, and how its numbers are printed."""

    name: str
    form: str = ".2f"
    """As Python's `format` has it."""
    least: float | None = None
    """Smaller numbers are printed as `<` this one."""
    nothing: str = NOTHING
    """What an empty cell shows."""


@dataclass(frozen=True)
class TableCell:
    """A number of ours beside the paper's; without one, `status` says why."""

    value: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    """A confidence interval."""
    count: int | None = None
    """How many seeds, cells, scenarios or pairs the number rests on."""
    paper: Published | None = None
    status: str = ""
    """`failed`, `missing`, `2 of 3 seeds`, `too few pairs`; nothing where all is well."""
    best: bool = False
    text: str = ""
    """What is shown instead of the number."""

    @property
    def difference(self) -> float | None:
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


def texts(table: Table) -> list[list[str]]:
    """The rows as texts, each with its title."""
    pairs = [(row, zip(row.cells, table.columns, strict=True)) for row in table.rows]
    return [[row.title, *(" | ".join(parts(cell, column)) for cell, column in cells)] for row, cells in pairs]


def parts(cell: TableCell, column: Column) -> tuple[str, ...]:
    """What a cell shows: ours alone, or ours, the paper's and the difference."""
    if cell.paper is None:
        return (_ours(cell, column),)
    difference = NOTHING if cell.difference is None else f"{cell.difference:+.1f}"
    return _ours(cell, column), f"{cell.paper.mean:.1f} ±{cell.paper.deviation:.1f}", difference


def _ours(cell: TableCell, column: Column) -> str:
    if cell.value is None or cell.text:
        return cell.text or cell.status or column.nothing
    shown = format(cell.value, column.form)
    if column.least is not None and cell.value < column.least:
        shown = f"<{column.least:g}"
    if cell.deviation is not None:
        shown += f" ±{format(cell.deviation, column.form.removeprefix('+'))}"
    if cell.low is not None and cell.high is not None:
        shown += f" [{format(cell.low, column.form)}, {format(cell.high, column.form)}]"
    return f"{shown} ({cell.status})" if cell.status else shown
