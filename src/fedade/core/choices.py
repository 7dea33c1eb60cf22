"""Settings, which are strict, and names that must be known: the error for others says which is meant."""

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class StrictSettings(BaseModel):
    """Settings that never change, and among which a key that there is not is an error. No number is infinite: JSON, in
    which settings are kept, has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def known_name(kind: str, name: str, known: Iterable[str]) -> str:
    """The name itself, if it is known; otherwise a `ValueError` of one line with the nearest, or with all.

    >>> known_name("schedule", "sine", ["lin", "sin"])
    Traceback (most recent call last):
    ValueError: schedule: 'sine' is unknown; did you mean sin?
    """
    names = list(known)
    if name in names:
        return name
    raise ValueError(f"{kind}: {name!r} is unknown{hint(name, names)}")


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown name: the nearest one that there is, or all."""
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; choose one of {', '.join(names)}"
