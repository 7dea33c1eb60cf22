"""Lists of entries, for people or for programs."""

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

LONG = 24
"""Characters from which a column may wrap, so that names never do."""


def terminal_table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of words, which never wrap, then columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def print_entries(entries: Sequence[dict[str, Any]], json_: bool) -> None:
    """A table, or a JSON array."""
    if json_:
        typer.echo(json.dumps(entries))
        return
    table = terminal_table([], [])
    for name in entries[0]:
        long = any(len(_text(entry[name])) > LONG for entry in entries)
        table.add_column(name, overflow="fold", no_wrap=not long)
    for entry in entries:
        table.add_row(*(_text(value) for value in entry.values()))
    Console().print(table)


def _text(value: object) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else str(value)
