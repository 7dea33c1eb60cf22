import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.reporting.paper import Published
from fedade.reporting.rendering import (
    CSV_FIELDS,
    Column,
    Table,
    TableCell,
    TableRow,
    document,
    latex_escaped,
    markdown_escaped,
)

from ..maths.samples import QUICK

numbers = st.floats(-1e6, 1e6)
maybe = st.none() | numbers
words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" "), max_size=12)
cells = st.builds(
    TableCell,
    value=maybe,
    deviation=maybe,
    low=maybe,
    high=maybe,
    count=st.none() | st.integers(0, 100),
    paper=st.none() | st.builds(Published, numbers, numbers),
    status=st.sampled_from(["", "failed", "missing", "2 of 3 seeds"]),
    best=st.booleans(),
)


@st.composite
def any_tables(draw: st.DrawFn) -> Table:
    columns = draw(st.lists(st.builds(Column, name=words), min_size=1, max_size=3))
    row_cells = st.tuples(*(cells for _ in columns))
    rows = draw(st.lists(st.builds(TableRow, name=words, cells=row_cells, oracle=st.booleans()), max_size=3))
    return Table(draw(words), tuple(columns), tuple(rows), tuple(draw(st.lists(words, max_size=2))))


TABLE = Table(
    "table1, CIFAR-10",
    (Column("Lin."), Column("p", ".3f", least=0.001)),
    (
        TableRow("Fed-ADE", (TableCell(73.844, 0.61, paper=Published(73.8, 0.6), best=True), TableCell(0.0004))),
        TableRow("w/o S_unc", (TableCell(status="failed", paper=Published(71.3, 0.3)), TableCell(0.25))),
        TableRow("oracle-prior", (TableCell(9.5, status="2 of 3 seeds"), TableCell()), oracle=True),
    ),
    ("A note of 100%.",),
)


def test_text_stands_in_columns() -> None:
    assert document([TABLE], "text").splitlines() == [
        "table1, CIFAR-10",
        "----------------------------------------------------------------------",
        "method                 Lin.                                     p",
        "----------------------------------------------------------------------",
        "Fed-ADE                        73.84 ±0.61* | 73.8 ±0.6 | +0.0  <0.001",
        "w/o S_unc                           failed  | 71.3 ±0.3 |    –   0.250",
        "oracle-prior (oracle)  9.50 (2 of 3 seeds)                           –",
        "----------------------------------------------------------------------",
        "A note of 100%.",
    ]


def test_markdown_is_a_table_with_the_best_in_bold() -> None:
    assert document([TABLE], "markdown").splitlines() == [
        "### table1, CIFAR-10",
        "",
        "| method | Lin. | p |",
        "| --- | ---: | ---: |",
        r"| Fed-ADE | **73.84 ±0.61 \| 73.8 ±0.6 \| +0.0** | \<0.001 |",
        r"| w/o S\_unc | failed \| 71.3 ±0.3 \| – | 0.250 |",
        "| *oracle-prior (oracle)* | 9.50 (2 of 3 seeds) | – |",
        "",
        "A note of 100%.",
    ]


def test_latex_is_a_booktabs_table_with_the_best_in_bold() -> None:
    lines = document([TABLE], "latex").splitlines()
    assert r"\begin{tabular}{lrr}" in lines
    assert lines.count(r"\toprule") == lines.count(r"\midrule") == lines.count(r"\bottomrule") == 1
    best = r"\textbf{73.84 $\pm$0.61 $\vert$ 73.8 $\pm$0.6 $\vert$ +0.0}"
    assert rf"{{}}Fed-ADE & {best} & $<$0.001 \\" in lines
    assert r"{}w/o S\_unc & failed $\vert$ 71.3 $\pm$0.3 $\vert$ -- & 0.250 \\" in lines
    assert r"{}\textit{oracle-prior (oracle)} & 9.50 (2 of 3 seeds) & -- \\" in lines
    assert r"\par A note of 100\%." in lines


def test_negative_numbers_have_a_minus_in_latex_and_words_a_hyphen() -> None:
    assert latex_escaped("Fed-ADE -1.5 [-2.0, -1.0]") == "Fed-ADE $-$1.5 [$-$2.0, $-$1.0]"


LATEX_MEANINGS = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\&": "&", r"\%": "%", r"\$": "$", r"\#": "#", r"\_": "_",
    r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", "$<$": "<", "$>$": ">", r"$\vert$": "|", r"$\pm$": "±",
    "$-$": "-", "--": "–", r"$\eta$": "η", r"$\alpha$": "α",
}  # fmt: skip
_LATEX_TOKEN = re.compile("|".join(map(re.escape, LATEX_MEANINGS)))


@QUICK
@given(st.text(st.sampled_from("\\{}&%$#_~^<>|±ηαab 1."), max_size=20))
def test_latex_prints_special_characters_as_they_stand(text: str) -> None:
    escaped = latex_escaped(text)
    assert _LATEX_TOKEN.sub(lambda found: LATEX_MEANINGS[found[0]], escaped) == text
    # What is left after the known commands are taken out has no meaning of its own in LaTeX.
    assert not set(_LATEX_TOKEN.sub("", escaped)) & set("\\{}&%$#_~^<>|±ηα")


@QUICK
@given(words)
def test_markdown_escapes_are_undone_by_a_reader(text: str) -> None:
    escaped = markdown_escaped(text)
    assert re.sub(r"\\([\\`*_{}\[\]<>#|])", r"\1", escaped) == text
    assert not re.search(r"(?<!\\)(?:\\\\)*[|*_`<>]", escaped)


@QUICK
@given(any_tables())
def test_every_line_of_markdown_and_latex_has_a_cell_for_every_column(table: Table) -> None:
    lines = [line for line in document([table], "markdown").splitlines() if line.startswith("| ")]
    width = len(table.columns) + 2
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [width] * (len(table.rows) + 2)
    rows = [line for line in document([table], "latex").splitlines() if line.startswith("{}") and line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [len(table.columns)] * (len(table.rows) + 1)


@QUICK
@given(any_tables())
def test_text_never_loses_a_row(table: Table) -> None:
    lines = document([table], "text").split("\n")
    assert [line.startswith(row.title.rstrip()) for row, line in zip(table.rows, lines[4:], strict=False)] == [
        True for _ in table.rows
    ]


@QUICK
@given(st.lists(any_tables(), max_size=3))
def test_csv_gives_back_every_number(tables: list[Table]) -> None:
    read = list(csv.DictReader(io.StringIO(document(tables, "csv"), newline="")))
    written = [
        (table, row, column, cell)
        for table in tables
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    ]
    for line, (table, row, column, cell) in zip(read, written, strict=True):
        assert tuple(line) == CSV_FIELDS
        assert (line["table"], line["row"], line["column"]) == (table.title, row.name, column.name)
        paper = cell.paper or Published(None, None)
        expected = {
            "value": cell.value, "deviation": cell.deviation, "low": cell.low, "high": cell.high, "count": cell.count,
            "paper": paper.mean, "paper_deviation": paper.deviation, "difference": cell.difference,
        }  # fmt: skip
        assert {name: float(line[name]) if line[name] else None for name in expected} == expected
        assert line["status"] == cell.status
        assert (line["best"], line["oracle"]) == (str(cell.best), str(row.oracle))


def test_an_unknown_format_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(FedadeError, match="no table format 'html'; there are text, markdown, latex, csv"):
        document([TABLE], "html")
