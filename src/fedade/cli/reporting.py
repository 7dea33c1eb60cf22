"""`fedade report`."""

from pathlib import Path
from typing import Annotated

import typer

from fedade.experiments.running import write_report


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
) -> None:
    """Draw the figures and the report page of a run again, from its trace."""
    typer.echo(f"report: {write_report(run)}")
