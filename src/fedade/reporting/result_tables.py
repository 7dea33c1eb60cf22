"""Tables from lines of results, each by a short description of what it shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from fedade.core.choices import StrictSettings
from fedade.core.errors import FedadeError
from fedade.reporting import names
from fedade.reporting.comparison import over_common_cases, paired
from fedade.reporting.grid import grid
from fedade.reporting.rendering import Column, Table, TableCell, TableRow, markdown_lines, markdown_table
from fedade.reporting.result_lines import Line, Pivot, labels_of, outcome, seeds_of
from fedade.reporting.results import rows, run_table
from fedade.reporting.tables import comparison_table, published


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


def _headed(value: Any) -> Any:
    """A list of values, or values and the headings that they get."""
    return value if isinstance(value, Mapping) else {str(name): None for name in _listed(value)}


Listed = Annotated[tuple[str | int | float, ...], BeforeValidator(_listed)]
Headed = Annotated[dict[str, str | None], BeforeValidator(_headed)]


class TableSpec(StrictSettings):
    """What a table shows of some files of results."""

    file: Annotated[tuple[str, ...], BeforeValidator(_listed)]
    table: Literal["accuracy", "compared", "paired", "run", "text"] = "accuracy"
    """Rows by columns; ranks and tests of all rows; two rows by seeds; the table of a run; cells with a text."""
    where: dict[str, Listed] = Field({})
    """Labels, and the values of which a line must have one."""
    row: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("row",)
    """Labels by which rows are told apart."""
    rows: Headed = Field({})
    """Which rows, in this order, perhaps under other names; all where none is named. The same for columns."""
    column: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("schedule",)
    columns: Headed = Field({})
    value: str = "accuracy_post"
    """What is measured, or `share`, the part of the oracle's gain."""
    decimals: int = 2
    deviation: bool = False
    """Whether to show the standard deviation over seeds."""
    mean: bool = False
    share: bool = False
    rank: bool = False
    rate: bool = False
    """Whether to add the mean of the columns, the share of the oracle's gain over them, the average rank over
    scenarios, the mean learning rate."""
    paper: str | None = None
    """The table of the paper whose numbers stand beside ours."""
    over: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Labels besides the seed over which a cell is a mean; a cell that mixes others is refused."""
    between: tuple[str, ...] = ()
    """The two rows of a paired comparison."""
    corner: str = ""
    """The heading of a `text` table's rows."""
    text: str = "{text}"
    """What a cell of a `text` table shows, with fields as Python's `format` has them; a line with `measure` and `value`
    gives its value under the measure's name."""


def markdown(spec: TableSpec, lines: Iterable[Line]) -> str:
    wanted = {label: [*map(str, values)] for label, values in spec.where.items()}
    chosen = [line for line in lines if all(line.get(label, "") in values for label, values in wanted.items())]
    if not chosen:
        raise FedadeError(f"{', '.join(spec.file)}: no line has {spec.where}; change `where`")
    return _TABLES[spec.table](spec, chosen)


def _chosen(there: Iterable[str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    """The names that are wanted, and their headings; all that are there where none is named."""
    known = dict.fromkeys(there)
    if missing := [name for name in wanted if name not in known]:
        raise FedadeError(f"no line has {missing[0]!r}; choose from {', '.join(known)}")
    return dict(wanted) or known


def _refuse_mixtures(spec: TableSpec, lines: Sequence[Line]) -> None:
    """No cell may be a mean over settings that nobody named."""
    seen: dict[tuple[str, str, str], str] = {}
    for line in lines:
        allowed = {"suite", "row", "method", "seed", *spec.column, *spec.row, *spec.over}
        for label, value in labels_of(line).items():
            if label not in allowed:
                before = seen.setdefault((_named(spec.row, line), _named(spec.column, line), label), value)
                if before != value:
                    raise FedadeError(
                        f"{', '.join(spec.file)}: a cell of {_named(spec.row, line)} mixes {label} {before} and "
                        f"{value}; choose one in `where`, or name {label} in `over`, `row` or `column`"
                    )


def _named(labels: Sequence[str], line: Line) -> str:
    return ", ".join(line[label] for label in labels if line.get(label))


def _pivot(spec: TableSpec, lines: Sequence[Line], value: str) -> Pivot:
    return Pivot(lines, partial(_named, spec.row), partial(_named, spec.column), value)


def _columns(spec: TableSpec, pivot: Pivot) -> dict[str, str]:
    """Columns and their headings, in the order that their labels have everywhere."""

    labelled = {name: list(zip(spec.column, name.split(", "), strict=False)) for name in pivot.columns}
    there = sorted(labelled, key=lambda column: [names.place(*pair) for pair in labelled[column]])
    chosen = _chosen(there, spec.columns).items()
    return {column: head or ", ".join(names.title(*pair) for pair in labelled[column]) for column, head in chosen}


def _accuracy(spec: TableSpec, lines: Sequence[Line]) -> str:
    """Rows by columns, the best of each column marked; a row with fewer seeds than others says which."""
    _refuse_mixtures(spec, lines)
    shares = spec.value == "share"
    pivot = _pivot(spec, lines, "accuracy_post" if shares else spec.value)
    rates = _pivot(spec, lines, "learning_rate_mean")
    row_names, columns = _chosen(pivot.rows, spec.rows), _columns(spec, pivot)
    seeds = {seed for row in row_names for seed in pivot.seeds(row)}

    def best(column: str) -> list[str]:
        """Rows with the highest mean as it is printed, of those that have all that any of them has."""
        ranked = [row for row in row_names if not pivot.oracle(row)]
        every = pivot.cases(ranked, column)
        means = {row: pivot.mean(row, column) for row in ranked if set(pivot.values(row, column)) == every}
        rounded = {row: round(mean, spec.decimals) for row, mean in means.items() if mean is not None}
        return [row for row, mean in rounded.items() if mean == max(rounded.values()) and len(rounded) > 1]

    ranks = pivot.ranks(row for row in row_names if not pivot.oracle(row))
    marked = {column: best(column) for column in columns}

    def cell(row: str, column: str) -> TableCell:
        if shares or (row, column) not in pivot.measured:
            return TableCell(pivot.share(row, [column]) if shares else None)
        measured = pivot.measured[row, column]
        of = [case for case in pivot.cases(row_names, column) if case[1] in pivot.seeds(row)]
        return TableCell(
            pivot.mean(row, column),
            measured.deviation if spec.deviation else None,
            paper=published(spec.paper, measured.labels) if spec.paper else None,
            status="" if len(measured.values) == len(of) else f"{len(measured.values)} of {len(of)} cells",
            best=row in marked[column],
        )

    def added(row: str) -> list[TableCell]:
        mean, rate = (_mean([side.mean(row, column) for column in columns]) for side in (pivot, rates))
        rank = TableCell(ranks.get(row), best=ranks.get(row) == min(ranks.values(), default=-1))
        cells = (TableCell(mean), TableCell(pivot.share(row, columns)), rank, TableCell(rate))
        return list(compress(cells, (spec.mean, spec.share, spec.rank, spec.rate)))

    def title(row: str) -> str:
        own = pivot.seeds(row)
        fewer = "" if own == seeds else f" (seed{'s' * (len(own) > 1)} {', '.join(map(str, sorted(own)))})"
        return f"{row_names[row] or row}{fewer}"

    form = "z.0f" if shares else f".{spec.decimals}f"
    share, rank, rate = (
        Column("share of the oracle's gain, %", "z.0f"),
        Column("average rank"),
        Column("mean rate", ".2g"),
    )
    more = compress((Column("mean", form), share, rank, rate), (spec.mean, spec.share, spec.rank, spec.rate))
    headings = [*(Column(heading, form) for heading in columns.values()), *more]
    cells = {row: (*(cell(row, column) for column in columns), *added(row)) for row in row_names}
    body = [TableRow(title(row), own, pivot.oracle(row)) for row, own in cells.items()]
    return markdown_table(Table("", tuple(headings), tuple(body)))


def _mean(values: Sequence[float | None]) -> float | None:
    """Only where there are all of them."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _compared(spec: TableSpec, lines: Sequence[Line]) -> str:
    """Ranks, shares of the oracle's gain, tests and costs; of all lines, or of those whose row is named."""
    kept = [line for line in lines if not spec.rows or line["row"] in spec.rows]
    table = comparison_table("", grid(map(outcome, kept)), {})
    return "\n".join([markdown_table(table), "", "\n\n".join(table.notes)])


def _paired(spec: TableSpec, lines: Sequence[Line]) -> str:
    """By column and over all: the difference of two rows, over pairs of equal scenario and seed."""
    pivot = _pivot(spec, [line for line in lines if len(seeds_of(line)) == 1], spec.value)
    first, second = _chosen(pivot.rows, dict.fromkeys(spec.between))
    columns = _columns(spec, pivot)

    def row(title: str, members: Sequence[str]) -> TableRow:
        ours, theirs = (
            {case: value for column in members for case, value in pivot.values(name, column).items()}
            for name in (first, second)
        )
        values = over_common_cases((ours, theirs))
        means = [TableCell(float(np.mean(own)) if own else None) for own in values]
        test = paired(*values)
        difference = TableCell(test.difference, low=test.low, high=test.high)
        return TableRow(title, (*means, difference, TableCell(test.t_test), TableCell(test.pairs)))

    headings = (
        Column(first), Column(second), Column("difference", "+.2f"), Column("p (t-test)", ".3f", least=0.001),
        Column("pairs", ".0f"),
    )  # fmt: skip
    body = [row(heading, [column]) for column, heading in columns.items()]
    return markdown_table(Table("", headings, (*body, row("all", list(columns))), corner=", ".join(spec.column)))


def _run(spec: TableSpec, lines: Sequence[Line]) -> str:
    """The table that a run prints, in the order of the rows that are named, or from the highest accuracy down."""
    by_method = rows(outcome(line).result._replace(method=line["row"]) for line in lines)  # type: ignore[union-attr]
    by_name = {row.method: row for row in sorted(by_method, key=lambda row: -row.accuracy_post)}
    made = run_table([by_name[name] for name in _chosen(by_name, spec.rows)])
    columns = _chosen((column.name for column in made.columns), spec.columns)
    kept = [place for place, column in enumerate(made.columns) if column.name in columns]
    body = [replace(row, cells=tuple(row.cells[place] for place in kept)) for row in made.rows]
    return markdown_table(replace(made, columns=tuple(made.columns[place] for place in kept), rows=tuple(body)))


def _text(spec: TableSpec, lines: Sequence[Line]) -> str:
    """Cells as their lines say them, in the order of the lines; equal beginnings of rows are written once."""
    fields: dict[tuple[str, str], dict[str, Any]] = {}
    leading: dict[str, list[str]] = {}
    for line in lines:
        row = _named(spec.row, line)
        leading[row] = [line[label] for label in spec.row]
        own = {line["measure"]: float(line["value"])} if "measure" in line else line
        cell = fields.setdefault((row, _named(spec.column, line)), {})
        if twice := cell.keys() & own.keys():
            raise FedadeError(f"two lines for {row}, {_named(spec.column, line)}, {min(twice)}; name more labels")
        cell.update(own)
    columns = _chosen((column for _, column in fields), spec.columns)
    body, above = [], ""
    for row, head in _chosen(leading, spec.rows).items():
        first, *others = leading[row]
        texts = [spec.text.format(**fields[row, name]) if (row, name) in fields else "" for name in columns]
        body.append([head or first if first != above or not others else "", *others, *texts])
        above = first
    headings = [spec.corner] if len(spec.row) == 1 else spec.row
    return markdown_lines([*headings, *(head or name for name, head in columns.items())], body)


_TABLES: Mapping[str, Callable[[TableSpec, Sequence[Line]], str]] = {
    "accuracy": _accuracy, "compared": _compared, "paired": _paired, "run": _run, "text": _text,
}  # fmt: skip
