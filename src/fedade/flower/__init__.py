"""The same methods on Flower: real clients over a real network. All that imports Flower is in this package, and nothing
in this file: commands show these names before Flower is loaded."""

import re

CLIENT_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
"""Names are also those of folders: none leads out of the one that it lies in."""
CONNECTION = "fedade"
"""What the SuperLink is called in Flower's own configuration, unless the user says otherwise."""
DAYS = 365
"""For which certificates are valid."""


def numbered_name(number: int) -> str:
    """The name of a client that is known by a number only, as in simulations."""
    return f"client-{number:04d}"
