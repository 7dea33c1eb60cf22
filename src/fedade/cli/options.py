"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
