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

from fedade.reporting.page.grids import facts_list, notices, table_markup
from fedade.reporting.page.scenes import PackedScenes
from fedade.reporting.table_model import Table

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
        facts=facts_list(page.facts),
        notes=notices(page.notes),
        tables="\n".join(table_markup(table) for table in page.tables),
        scene_tables="\n".join(
            table_markup(table, place) for place, tables in enumerate(page.scene_tables) for table in tables
        ),
        command=html.escape(page.command),
        provenance=facts_list(page.provenance),
        config=html.escape(yaml.safe_dump(dict(page.config), sort_keys=False, allow_unicode=True)),
        style="\n".join(_asset(f"{name}.css") for name in _STYLES),
        script="\n".join(_asset(f"{name}.js") for name in (*_SCRIPTS, *["live"] * page.live)),
        index=index,
        blobs="\n".join(page.scenes.blobs),
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
