"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from fedade.experiments.assignments import in_present_words, with_setting
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import Settings, merged

What = Annotated[str, typer.Argument(metavar="[PRESET or FILE]", help="A preset (`fedade list presets`) or a file.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cpu")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder that holds datasets (or FEDADE_DATA).")]
Track = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Also write to tensorboard or mlflow; repeatable.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Serve a page that follows the run, on this machine only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]


def settings_with(
    settings: Settings, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    """Settings with what the command line says on top."""
    for assignment in assignments or []:
        settings = with_setting(settings, assignment)
    if data_dir is not None:
        settings = merged(settings, {"scenario": {"data_dir": str(data_dir.resolve())}})
    if device is not None:
        settings = merged(settings, {"execution": {"device": device}})
    return in_present_words(settings)


def named_settings(
    what: str, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    """Settings of a preset or file, with what the command line says on top."""
    return settings_with(settings_from(what), assignments, data_dir, device)
