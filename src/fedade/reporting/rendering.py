"""A table of numbers, free of any format, and as text, Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fedade.core.errors import FedadeError
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


CSV_FIELDS = (
    "table", "row", "oracle", "column", "value", "deviation", "low", "high", "count", "paper", "paper_deviation",
    "difference", "status", "best",
)  # fmt: skip
"""One line per cell, with numbers as they are, so that tables of any shape make one file."""
EXTENSIONS: Mapping[str, str] = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv"}
"""Formats, and how the names of their files end."""
TEXT_WIDTH = 120
"""Where notes under a table of text wrap; the table itself never does."""
_LATEX = str.maketrans({
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
    "|": r"$\vert$", "±": r"$\pm$", "−": r"$-$", "–": "--", "η": r"$\eta$", "α": r"$\alpha$",
})  # fmt: skip
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|])")
_NEGATIVE = re.compile(r"(?<!\w)-(?=\d)")


def document(tables: Sequence[Table], fmt: str) -> str:
    if fmt == "csv":
        return _csv(tables)
    if fmt not in _RENDERERS:
        raise FedadeError(f"no table format {fmt!r}; there are {', '.join(EXTENSIONS)}")
    return "\n".join(_RENDERERS[fmt](table) for table in tables)


def latex_escaped(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return _NEGATIVE.sub("$-$", text.translate(_LATEX))


def markdown_escaped(text: str) -> str:
    """Text that Markdown prints as it stands, in the cell of a table too."""
    return _MARKDOWN.sub(r"\\\1", text)


def _text(table: Table) -> str:
    def starred(cell: TableCell, column: Column) -> tuple[str, ...]:
        ours, *others = parts(cell, column)
        return (f"{ours}{'*' if cell.best else ' '}", *others)

    columns = [
        _aligned(column.name, [starred(row.cells[index], column) for row in table.rows])
        for index, column in enumerate(table.columns)
    ]
    names = _padded([table.corner, *(row.title for row in table.rows)])
    lines = ["  ".join(cells).rstrip() for cells in zip(names, *columns, strict=True)]
    rule = "-" * max(map(len, lines))
    notes = [line for note in table.notes for line in textwrap.wrap(note, TEXT_WIDTH)]
    return "\n".join([table.title, rule, lines[0], rule, *lines[1:], rule, *notes, ""])


def _aligned(heading: str, cells: Sequence[tuple[str, ...]]) -> list[str]:
    """A column whose parts stand under each other."""
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    joined = [" | ".join(part.rjust(width) for part, width in zip(cell, widths, strict=False)) for cell in cells]
    return _padded([heading, *joined])


def _padded(lines: Sequence[str]) -> list[str]:
    width = max(map(len, lines))
    return [line.ljust(width) for line in lines]


def _lines(table: Table, escaped: Callable[[str], str], best: str, oracle: str) -> list[list[str]]:
    """The headings and every row; `best` and `oracle` are formats of what is marked so."""
    head = [escaped(name) for name in (table.corner, *(column.name for column in table.columns))]
    rows = []
    for row, shown in zip(table.rows, texts(table), strict=True):
        marks = [oracle if row.oracle else "{}", *(best if cell.best else "{}" for cell in row.cells)]
        rows.append([mark.format(escaped(text)) for mark, text in zip(marks, shown, strict=True)])
    return [head, *rows]


def markdown_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts that are Markdown already."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def markdown_table(table: Table) -> str:
    """A table without its title and notes."""
    head, *rows = _lines(table, markdown_escaped, "**{}**", "*{}*")
    return markdown_lines(head, rows)


def _markdown(table: Table) -> str:
    notes = [markdown_escaped(note) + "\n" for note in table.notes]
    return "\n".join([f"### {markdown_escaped(table.title)}", "", markdown_table(table), "", *notes])


def _latex(table: Table) -> str:
    head, *rows = _lines(table, latex_escaped, r"\textbf{{{}}}", r"\textit{{{}}}")
    return "\n".join([
        "% needs \\usepackage{booktabs}", "\\begin{table*}[t]", "\\centering\\scriptsize",
        f"\\caption{{{latex_escaped(table.title)}}}", f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        "\\toprule", _latex_line(head), "\\midrule", *map(_latex_line, rows), "\\bottomrule", "\\end{tabular}",
        *(f"\\par {latex_escaped(note)}" for note in table.notes), "\\end{table*}", "",
    ])  # fmt: skip


def _latex_line(cells: Sequence[str]) -> str:
    # The empty group keeps a cell that begins with "[" from being read as an argument of the line break before it.
    return "{}" + " & ".join(cells) + r" \\"


def _csv(tables: Sequence[Table]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for table in tables:
        for row in table.rows:
            place = {"table": table.title, "row": row.name, "oracle": row.oracle}
            for column, cell in zip(table.columns, row.cells, strict=True):
                mean, deviation = cell.paper or (None, None)
                paper = {"paper": mean, "paper_deviation": deviation, "difference": cell.difference}
                writer.writerow(place | vars(cell) | paper | {"column": column.name})
    return buffer.getvalue()


_RENDERERS: Mapping[str, Callable[[Table], str]] = {"text": _text, "markdown": _markdown, "latex": _latex}
