"""Who listens to the cells of a command: its bars, trackers, and a page in the browser."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import typer

from fedade.cli.progress import cell_bars
from fedade.core.events import Listener, Listeners
from fedade.listeners import trackers_named
from fedade.listeners.server import serve_in_background


@contextmanager
def listening(folder: Path, quiet: bool, track: list[str] | None, watch: bool) -> Iterator[Listener]:
    """All listeners of a command as one; trackers write what they hold back, whatever ends the command."""
    with ExitStack() as held:
        trackers = trackers_named(track or [], folder)
        for tracker in trackers:
            held.callback(tracker.close)
        if watch:
            address = held.enter_context(serve_in_background(folder))
            typer.echo(f"watch: {address}", err=True)
        bars = held.enter_context(cell_bars(folder.name, quiet))
        yield Listeners([bars, *trackers])
