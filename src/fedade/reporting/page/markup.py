"""Tables and short lists as HTML."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedade.reporting.table_model import Column, Table, TableCell, TableRow, parts


def table_markup(table: Table, scene: int | None = None) -> str:
    """A table that scrolls by itself where it is too wide; one of a single scene is shown with that scene."""
    headings = (table.corner, *(column.name for column in table.columns))
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in headings)
    body = "\n".join(_row(row, table.columns) for row in table.rows)
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
    items = "".join(f"<li>{html.escape(name)} <b>{html.escape(value)}</b></li>" for name, value in facts.items())
    return f'<ul class="facts">{items}</ul>' if facts else ""


def notices(notes: Iterable[str]) -> str:
    return "\n".join(f'<p class="notice">{html.escape(note)}</p>' for note in notes)


def _row(row: TableRow, columns: Sequence[Column]) -> str:
    mark = ' class="oracle"' if row.oracle else ""
    cells = "".join(_cell(cell, column) for cell, column in zip(row.cells, columns, strict=True))
    return f"<tr{mark}><td>{html.escape(row.title)}</td>{cells}</tr>"


def _cell(cell: TableCell, column: Column) -> str:
    """Ours, and in a second, smaller line the paper's number and the difference; sorted by its value."""
    ours, *paper = parts(cell, column)
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    best = ' class="best"' if cell.best else ""
    below = f"<br><small>{html.escape(' | '.join(paper))}</small>" if paper else ""
    return f"<td{value}{best}>{html.escape(ours)}{below}</td>"
