"""What a dataset of texts is, before a tokeniser turns it into numbers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

TextInput = Literal["evidence", "paraphrase", "pair", "template"]
"""How a fact is put into words (`fedade.data.known.lama`)."""


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their labels; a model reads the text, then its question."""

    texts: tuple[str, ...]
    labels: NDArray[np.int64]
    focus: tuple[tuple[str, ...], ...]
    """The parts of each text that it is about, such as its subject; a cut takes what is farthest from them."""
    questions: tuple[str, ...]
    """What is asked about each text, never cut; may be empty."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TextDataset:
    """A named dataset of texts: what models are trained on, and what they are tested on."""

    name: str
    class_names: tuple[str, ...]
    train: LabelledTexts
    test: LabelledTexts
    partial: str | None = None
    """Why this copy is incomplete; None when it is whole."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
