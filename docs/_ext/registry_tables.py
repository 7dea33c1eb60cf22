"""Tables of what can be named, in Markdown, from the registries themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fedade.cli.listing import COMPUTED, ListedKind
from fedade.maths.schedules import SCHEDULES
from fedade.methods import METHODS
from settings_tables import setting_rows

FIRST = ("fed-ade-plus", "fed-ade")
"""Methods whose settings are looked up most; the others follow in the registry's order."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts, numbers and truths."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    return str(value).replace("|", "\\|").replace("\n", " ")


def listed(kind: ListedKind, *columns: str) -> str:
    """What `fedade list` shows, of some columns: not those that depend on the machine."""
    rows = ([f"`{entry['name']}`", *(entry[column] for column in columns)] for entry in COMPUTED[kind]())
    return markdown_table(("name", *columns), rows)


def schedules() -> str:
    """Schedules, with what each does."""
    rows = ((f"`{name}`", schedule.summary, schedule.random) for name, schedule in SCHEDULES.items())
    return markdown_table(("name", "how far the stream has moved", "random"), rows)


def method_settings() -> str:
    """A section per method that has settings of its own."""
    names = [*FIRST, *(name for name in METHODS if name not in FIRST)]
    return "\n".join(filter(None, map(_settings_of, names)))


def _settings_of(name: str) -> str:
    make: Any = METHODS[name]
    preset = make.keywords if isinstance(make, partial) else {}
    model = getattr(make, "func", make)
    rows = [row for row in setting_rows(model, preset=preset) if row.key != "constants"]
    if not rows:
        return ""
    shown = ((f"`{row.key}`", row.values, f"`{row.default}`", row.meaning) for row in rows)
    table = markdown_table(("setting", "values", "default", "meaning"), shown)
    return f"## {name}\n\n{make().card.summary[:1].upper()}{make().card.summary[1:]}.\n\n{table}\n"


TABLES: Mapping[str, Callable[[], str]] = {
    "methods": partial(listed, "methods", "summary", "source", "rounds", "reference", "oracle"),
    "datasets": partial(listed, "datasets", "classes", "examples", "remark"),
    "models": partial(listed, "models", "summary"),
    "measures": partial(listed, "measures", "predictions", "features", "summary"),
    "presets": partial(listed, "presets", "dataset", "kind", "model"),
    "suites": partial(listed, "suites", "summary", "cells"),
    "streams": partial(listed, "streams", "summary"),
    "schedules": schedules,
    "corruptions": partial(listed, "corruptions", "images", "default"),
    "method-settings": method_settings,
}
