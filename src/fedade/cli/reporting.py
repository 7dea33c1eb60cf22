"""`fedade report`, `fedade export` and `fedade watch`: what is made of the folders of runs and suites."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.options import TRACKER_NAMES, loading, writable_folder


def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_OR_SUITE...", help="Folders of runs or suites.")],
    table: Annotated[str | None, typer.Option(help="Print the tables instead: text, markdown, latex or csv.")] = None,
) -> None:
    """Write the report page of runs and suites again, and the figures of runs, from what their folders hold."""
    with loading():
        from fedade.core.paths import require_folder

        for folder in folders:
            require_folder(folder)
        from fedade.products.suite_folder import printed_tables, write_any_report
    for folder in folders:
        typer.echo(f"report: {write_any_report(folder)}" if table is None else printed_tables(folder, table))


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


def watch_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_OR_SUITE", help="Folder of a run or suite, finished or not.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Show a page that follows a run or suite, also one in another process; Ctrl-C ends the page, not the run."""
    with loading():
        from fedade.core.paths import require_folder

        require_folder(folder)
        from fedade.listeners.server import LiveServer
    with LiveServer(folder, port) as server:
        typer.echo(f"watching {folder}: {server.address} (Ctrl-C to end)")
        if open_:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")
