"""What several commands share: options, the line that a terminal shows while they load, and tables."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedade.core.paths import require_writable

DEFAULT = "digits-label"
"""The preset that runs where none is named."""
What = Annotated[str, typer.Argument(metavar="[PRESET or FILE]", help="A preset (`fedade list presets`) or a file.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cpu")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder that holds datasets (or FEDADE_DATA).")]
TRACKER_NAMES = "tensorboard or mlflow"
"""What help says of `fedade.listeners.TRACKERS`, which it does not wait for."""
Track = Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"Also write to {TRACKER_NAMES}; repeatable.")]
Watch = Annotated[bool, typer.Option("--watch", help="Serve a page that follows the run, on this machine only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
LONG = 24
"""Characters from which a column may wrap, so that names never do."""


@contextmanager
def loading() -> Iterator[None]:
    """A line on standard error that lasts as long as the imports below it; nothing where that is no terminal."""
    with Console(stderr=True).status("loading"):
        yield


def terminal_table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of words, which never wrap, then columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def print_entries(entries: Sequence[dict[str, Any]], json_: bool) -> None:
    if json_:
        typer.echo(json.dumps(entries))
        return
    table = terminal_table([], [])
    for name in entries[0]:
        table.add_column(name, overflow="fold", no_wrap=not any(len(_text(entry[name])) > LONG for entry in entries))
    for entry in entries:
        table.add_row(*(_text(value) for value in entry.values()))
    Console(markup=False).print(table)


def _text(value: object) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else str(value)


def writable_folder(out: Path | None) -> Path | None:
    """The callback of every `--out` that names a folder: one that cannot be written is told before all else."""
    if out is not None:
        require_writable(out)
    return out


def writable_file(out: Path | None) -> Path | None:
    """The same of a file."""
    if out is not None:
        require_writable(out.parent)
    return out
