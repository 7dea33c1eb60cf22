"""What layers deep inside a network's modules must be told during a pass, where no argument can reach them.

The only context variable of the package: everything else is an argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from fedade.core.normalisation import FROZEN, Normalisation
from fedade.core.precision import Precision


class PassContext(NamedTuple):
    """How one forward pass is to be made."""

    normalisation: Normalisation = FROZEN
    """Which statistics batch normalisation layers use."""
    precision: Precision = "float32"
    """The precision in which layers multiply."""


_PLAIN = PassContext()
_current: ContextVar[PassContext] = ContextVar("pass", default=_PLAIN)


def current_pass() -> PassContext:
    """How the pass that is being made wants its layers to compute."""
    return _current.get()


@contextmanager
def making_pass(context: PassContext) -> Iterator[None]:
    """Tell the layers of one forward pass how to compute."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
