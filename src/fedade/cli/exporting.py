"""`fedade export`."""

from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.loading import loading
from fedade.cli.options import TRACKER_NAMES, writable_folder


def export_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_OR_SUITE", help="Folder of a run or suite, finished or not.")],
    to: Annotated[str, typer.Option(help=f"{TRACKER_NAMES}.")],
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_folder, help="Folder for logs or database.", show_default="in RUN_OR_SUITE"),
    ] = None,
) -> None:
    """Write what a run or suite recorded to TensorBoard or MLflow; again adds only what is new."""
    with loading():
        from fedade.core.paths import require_folder

        require_folder(folder)
        from fedade.listeners import export
    typer.echo(f"{to}: {export(folder, to, out)} cells of {folder}")
