"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
