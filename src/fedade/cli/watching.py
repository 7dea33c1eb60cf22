"""`fedade watch`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.loading import loading


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
