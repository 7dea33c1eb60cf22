"""One client after the other: the reference, for debugging and for judging the others."""

from fedade.core.tree import each_row as loop

__all__ = ["loop"]
