"""What a terminal shows while a command imports what it works with: PyTorch takes seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def loading() -> Iterator[None]:
    """A line on standard error that lasts as long as the imports below it; nothing where that is no terminal."""
    with Console(stderr=True).status("loading"):
        yield
