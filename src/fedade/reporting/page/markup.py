"""Tables and short lists as HTML."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedade.reporting.results import ResultRow
from fedade.reporting.table_model import Table, parts

_COLUMNS = (
    "method", "after", "±", "before", "oracle share", "mean rate", "MB sent", "seconds",
)  # fmt: skip


def column_names() -> tuple[str, ...]:
    """The headings that belong to `cells`."""
    return _COLUMNS


def cells(row: ResultRow) -> tuple[str, ...]:
    """A row of the table as text, in the order of the report's columns."""
    return (
        row.method + (" (oracle)" if row.oracle else ""),
        f"{100 * row.accuracy_post:.2f}",
        f"{100 * row.deviation:.2f}",
        f"{100 * row.accuracy_pre:.2f}",
        "" if row.share_of_oracle is None else f"{100 * row.share_of_oracle:.0f}%",
        "" if row.learning_rate is None else f"{row.learning_rate:.3g}",
        f"{row.megabytes_sent:.1f}",
        f"{row.seconds:.1f}",
    )


class HtmlCell(NamedTuple):
    """What a cell shows, and the number that it is sorted by where that is not its text."""

    text: str
    value: float | None = None
    below: str = ""
    """A second, smaller line."""
    best: bool = False


@dataclass(frozen=True)
class HtmlTable:
    """A table of the page."""

    headings: Sequence[str]
    rows: Sequence[Sequence[HtmlCell]]
    oracles: frozenset[int] = frozenset()
    """Which rows are oracles."""
    title: str = ""
    notes: Sequence[str] = ()


def results_table(rows: Sequence[ResultRow], title: str = "") -> HtmlTable:
    """The table of a run: one row per method, over all seeds."""
    ranked = [row.accuracy_post for row in rows if not row.oracle]
    best = {(place, "after") for place, row in enumerate(rows) if not row.oracle and row.accuracy_post == max(ranked)}
    return HtmlTable(
        headings=column_names(),
        rows=[
            [
                HtmlCell(text, _number(text), best=(place, name) in best)
                for name, text in zip(_COLUMNS, cells(row), strict=True)
            ]
            for place, row in enumerate(rows)
        ],
        oracles=frozenset(place for place, row in enumerate(rows) if row.oracle),
        title=title,
    )


def suite_table(table: Table) -> HtmlTable:
    """A table of a suite, the paper's number and the difference in a second line."""

    def shown(place: int, column: int) -> HtmlCell:
        cell = table.rows[place].cells[column]
        ours, *paper = parts(cell, table.columns[column])
        return HtmlCell(ours, cell.value, " | ".join(paper), cell.best)

    return HtmlTable(
        headings=[table.corner, *(column.name for column in table.columns)],
        rows=[
            [HtmlCell(row.title), *(shown(place, column) for column in range(len(table.columns)))]
            for place, row in enumerate(table.rows)
        ],
        oracles=frozenset(place for place, row in enumerate(table.rows) if row.oracle),
        title=table.title,
        notes=table.notes,
    )


def table_markup(table: HtmlTable, scene: int | None = None) -> str:
    """A table that scrolls by itself where it is too wide; one of a single scene is shown with that scene."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.headings)
    body = "\n".join(_row(cells, place in table.oracles) for place, cells in enumerate(table.rows))
    # A heading, not a caption: a caption would scroll out of sight with a wide table.
    heading = f"<h3>{html.escape(table.title)}</h3>" if table.title else ""
    name = html.escape(table.title or "Results")
    notes = "".join(f'<p class="aside">{html.escape(note)}</p>' for note in table.notes)
    mark = "" if scene is None else f' data-scene="{scene}"'
    return (
        f'<div class="results"{mark}>{heading}<div class="scroll" tabindex="0" role="group" aria-label="{name}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{notes}</div>'
    )


def origin(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Where numbers came from, in short, from what a run writes down about itself."""
    versions = provenance.get("versions") or {}
    commit = provenance.get("commit")
    facts = {
        "fedade": versions.get("fedade"),
        "commit": f"{commit[:10]}{' and changes' if provenance.get('dirty') else ''}" if commit else None,
        "torch": versions.get("torch"),
        "device": provenance.get("device"),
        "started": provenance.get("started"),
    }
    return {name: str(value) for name, value in facts.items() if value}


def facts_list(facts: Mapping[str, str]) -> str:
    """Short statements side by side."""
    items = "".join(f"<li>{html.escape(name)} <b>{html.escape(value)}</b></li>" for name, value in facts.items())
    return f'<ul class="facts">{items}</ul>' if facts else ""


def notices(notes: Iterable[str]) -> str:
    """Warnings, each in a box of its own."""
    return "\n".join(f'<p class="notice">{html.escape(note)}</p>' for note in notes)


def _row(cells: Sequence[HtmlCell], oracle: bool) -> str:
    mark = ' class="oracle"' if oracle else ""
    return f"<tr{mark}>{''.join(_cell(cell) for cell in cells)}</tr>"


def _cell(cell: HtmlCell) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    best = ' class="best"' if cell.best else ""
    below = f"<br><small>{html.escape(cell.below)}</small>" if cell.below else ""
    return f"<td{value}{best}>{html.escape(cell.text)}{below}</td>"


def _number(text: str) -> float | None:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        return None
