"""The report page: one file that opens without a network.

Tables are HTML and are there before, and without, any script. Plots are drawn by the scripts in `assets/`, which are
plain JavaScript without a library: four kinds of plot need a few hundred lines, while a library would bring more bytes
than all the numbers of a small run, has no heat map, and leaves a vendored copy to look after.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from fedade.reporting.page.scenes import PackedScenes
from fedade.reporting.rendering import Column, Table, TableCell, TableRow, parts

QUESTION = (
    "How well do clients keep up with their own drifting data, without labels? Accuracy in percent, mean over clients "
    "and timesteps, on the batch itself, after and before the timestep's adaptation; ± is the standard deviation over "
    "seeds, where there are several; oracle share is the part of the way from source to oracle-prior."
)
_SCRIPTS = (
    "sorting", "data", "scales", "line_chart", "heat_map", "prior_chart", "views", "choices", "controls",
    "scene_chooser", "curves", "answers", "clients", "saving", "main",
)  # fmt: skip
"""In this order: each uses those before it."""
_STYLES = ("page", "controls", "charts")


@dataclass(frozen=True)
class Page:
    """What a report page says."""

    title: str
    tables: Sequence[Table]
    scenes: PackedScenes
    config: Mapping[str, Any]
    command: str
    question: str = QUESTION
    facts: Mapping[str, str] = field(default_factory=dict)
    """Short statements under the title, such as the number of clients."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Versions and machine."""
    notes: Sequence[str] = ()
    """What the reader must be warned of."""
    scene_tables: Sequence[Sequence[Table]] = ()
    """Those of each scene, shown with its plots; none where a page has one scene only."""
    live: bool = False
    """Whether the page follows a run through its server; its index then has a `version`, and whether all is `over`."""


def render(page: Page) -> str:
    # "<" could end the script element early; JSON may say it in another way.
    index = json.dumps(page.scenes.index, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Template(_asset("template.html")).substitute(
        title=html.escape(page.title),
        question=html.escape(page.question),
        facts=_facts_list(page.facts),
        notes="\n".join(f'<p class="notice">{html.escape(note)}</p>' for note in page.notes),
        tables="\n".join(_table_markup(table) for table in page.tables),
        scene_tables="\n".join(
            _table_markup(table, place) for place, tables in enumerate(page.scene_tables) for table in tables
        ),
        command=html.escape(page.command),
        provenance=_facts_list(page.provenance),
        config=html.escape(yaml.safe_dump(dict(page.config), sort_keys=False, allow_unicode=True)),
        style="\n".join(_asset(f"{name}.css") for name in _STYLES),
        script="\n".join(_asset(f"{name}.js") for name in (*_SCRIPTS, *["live"] * page.live)),
        index=index,
        blobs="\n".join(page.scenes.blobs),
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _table_markup(table: Table, scene: int | None = None) -> str:
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


def _facts_list(facts: Mapping[str, str]) -> str:
    items = "".join(f"<li>{html.escape(name)} <b>{html.escape(value)}</b></li>" for name, value in facts.items())
    return f'<ul class="facts">{items}</ul>' if facts else ""


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
