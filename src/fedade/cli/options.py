"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedade.experiments.presets import settings_from
from fedade.experiments.settings import with_setting

What = Annotated[str, typer.Argument(metavar="[PRESET or FILE]", help="A preset (`fedade list presets`) or a file.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder that holds datasets (or FEDADE_DATA).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]


def settings_with(settings: dict[str, Any], assignments: list[str] | None, data_dir: Path | None) -> dict[str, Any]:
    """Settings with what the command line says on top."""
    for assignment in assignments or []:
        settings = with_setting(settings, assignment)
    if data_dir is not None:
        scenario = {**settings.get("scenario", {}), "data_dir": str(data_dir.resolve())}
        settings = {**settings, "scenario": scenario}
    return settings


def named_settings(what: str, assignments: list[str] | None, data_dir: Path | None) -> dict[str, Any]:
    """Settings of a preset or file, with what the command line says on top."""
    return settings_with(settings_from(what), assignments, data_dir)
