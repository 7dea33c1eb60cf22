"""Processes that end with the one that started them, from their first moment: this imports nothing that takes long."""

import importlib
import os
import threading
from multiprocessing.connection import Connection
from typing import Any


def on_leash(leash: Connection, module: str, function: str, *arguments: Any) -> None:
    """In a new process: watch over its end, then import what begins its work, and call it. The module comes by its
    name. Were the function itself sent, it would be imported before anybody watches."""
    threading.Thread(target=_end_when_closed, args=(leash,), daemon=True).start()
    getattr(importlib.import_module(module), function)(*arguments)


def _end_when_closed(leash: Connection) -> None:
    """A runner that stops or is killed leaves no process behind; what they did so far is on disk."""
    leash.poll(None)
    os._exit(1)
