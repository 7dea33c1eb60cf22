"""What data and models agree on about tokenised text."""

from collections.abc import Sequence
from typing import Protocol

PADDING = -1
"""Fills the right of a text shorter than the dataset's length: no vocabulary has this token."""


class Tokeniser(Protocol):
    """Turns texts into token numbers, without padding."""

    @property
    def fingerprint(self) -> str:
        """A name that two tokenisers share only if they give the same numbers."""

    @property
    def context(self) -> int:
        """Tokens that the model can read at once."""

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The token numbers of every text."""
