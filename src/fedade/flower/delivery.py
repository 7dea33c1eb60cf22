"""How the parts of a message are fetched and sent. Flower registers a message first, and sends its parts then."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

PATIENCE: dict[str, Any] = {"initial_backoff": 0.05, "backoff_cap": 2.0, "max_tries_per_object": 20}
"""With a part that is announced and not there: it is asked for at once again, and given up after half a minute without
it. Flower waits for a second at first, and for a node that was killed meanwhile for minutes."""

Send = Callable[[str, bytes], tuple[bool, int]]
"""Sends a part by its name; tells whether it was taken, and how often it had to be sent until there was an answer."""


def fetch_soon(grid: Grid) -> None:
    """Let a grid fetch answers with this patience."""
    module = sys.modules[type(grid).__module__]
    fetch = getattr(module, "pull_objects", None)
    if fetch is not None and not isinstance(fetch, partial):
        module.pull_objects = partial(fetch, **PATIENCE)  # type: ignore[attr-defined]


def once(send: Send, run: int, session: str, known: bool) -> Callable[[str, bytes], None]:
    """Sends parts so that a lost answer does no harm: what was taken the first time is not taken again.

    `known` says that the message itself was sent twice, so that its parts may have come already.
    """

    def send_part(name: str, content: bytes) -> None:
        taken, times = send(name, content)
        if not taken and times == 1 and not known:
            raise ObjectPushError(name, run, session)

    return send_part
