"""What a client may be called."""

import re

CLIENT_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
"""Names are also those of folders: none leads out of the one that it lies in."""


def numbered_name(number: int) -> str:
    """The name of a client that is known by a number only, as in simulations."""
    return f"client-{number:04d}"
