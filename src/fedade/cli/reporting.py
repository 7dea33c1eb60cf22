"""`fedade report`."""

from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.loading import loading


def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_OR_SUITE...", help="Folders of runs or suites.")],
    table: Annotated[str | None, typer.Option(help="Print the tables instead: text, markdown, latex or csv.")] = None,
) -> None:
    """Write the report page of runs and suites again, and the figures of runs, from what their folders hold."""
    with loading():
        from fedade.core.paths import require_folder

        for folder in folders:
            require_folder(folder)
        from fedade.products.suite_report import printed_tables, write_any_report
    for folder in folders:
        typer.echo(f"report: {write_any_report(folder)}" if table is None else printed_tables(folder, table))
