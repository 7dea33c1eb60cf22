"""Tables as text, Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from fedade.core.errors import FedadeError
from fedade.reporting.table_model import Column, Table, TableCell, parts, texts

CSV_FIELDS = (
    "table", "row", "oracle", "column", "value", "deviation", "low", "high", "count", "paper", "paper_deviation",
    "difference", "status", "best",
)  # fmt: skip
"""One line per cell, with numbers as they are, so that tables of any shape make one file."""

EXTENSIONS: Mapping[str, str] = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv"}
"""Formats, and how the names of their files end."""

TEXT_WIDTH = 120
"""Where notes under a table of text wrap; the table itself never does."""

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"$<$",
        ">": r"$>$",
        "|": r"$\vert$",
        "±": r"$\pm$",
        "−": r"$-$",
        "–": "--",
        "η": r"$\eta$",
        "α": r"$\alpha$",
    }
)
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
    columns = [
        _aligned(column.name, [_starred(row.cells[index], column) for row in table.rows])
        for index, column in enumerate(table.columns)
    ]
    names = _padded([table.corner, *(row.title for row in table.rows)])
    lines = ["  ".join(cells).rstrip() for cells in zip(names, *columns, strict=True)]
    rule = "-" * max(map(len, lines))
    notes = [line for note in table.notes for line in textwrap.wrap(note, TEXT_WIDTH)]
    return "\n".join([table.title, rule, lines[0], rule, *lines[1:], rule, *notes, ""])


def _starred(cell: TableCell, column: Column) -> tuple[str, ...]:
    ours, *others = parts(cell, column)
    return (f"{ours}{'*' if cell.best else ' '}", *others)


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
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table*}[t]",
            "\\centering\\scriptsize",
            f"\\caption{{{latex_escaped(table.title)}}}",
            f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            "\\toprule",
            _latex_line(head),
            "\\midrule",
            *map(_latex_line, rows),
            "\\bottomrule",
            "\\end{tabular}",
            *(f"\\par {latex_escaped(note)}" for note in table.notes),
            "\\end{table*}",
            "",
        ]
    )


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
