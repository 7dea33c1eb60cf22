"""What a dataset of texts is, and its texts as rows of token numbers, made once and kept on disk."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING, Tokeniser
from fedade.data.dataset import Dataset, Labelled

TextInput = Literal["evidence", "paraphrase", "pair", "template"]
"""How a fact is put into words (`fedade.data.known.lama`)."""

FORMAT_VERSION = 1
"""Part of every key: raised when the same texts would give other rows."""


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


def tokenised(dataset: TextDataset, tokeniser: Tokeniser, max_tokens: int, cache: Path) -> Dataset:
    """The dataset with inputs `[N, L]`, int32, padded on the right; L is its longest text, at most `max_tokens`.

    A longer text loses the words that are farthest from what it is about. The rows are memory-mapped from a file
    that is named by the texts, the tokeniser and the limit.
    """
    parts = (dataset.train, dataset.test)
    path = cache / f"{dataset.name}-{_key(parts, tokeniser, max_tokens)}.npy"
    rows = _stored(path, sum(map(len, parts)))
    if rows is None:
        tokens = [numbers for part in parts for numbers in _fitting(part, tokeniser, max_tokens)]
        storage.write_array(path, _padded(tokens))
        rows = _stored(path, len(tokens))
        assert rows is not None  # noqa: S101 - it was written just now
    if rows.shape[1] > tokeniser.context:
        raise FedadeError(
            f"{dataset.name} has a text of {rows.shape[1]} tokens, the model reads {tokeniser.context} at once; "
            f"set scenario.text.max_tokens to {tokeniser.context} or less"
        )
    train, test = np.split(rows, [len(dataset.train)])
    return Dataset(
        dataset.name,
        dataset.class_names,
        Labelled(train, dataset.train.labels),
        Labelled(test, dataset.test.labels),
        dataset.partial,
    )


def _key(parts: Sequence[LabelledTexts], tokeniser: Tokeniser, max_tokens: int) -> str:
    identity = [
        FORMAT_VERSION,
        tokeniser.fingerprint,
        max_tokens,
        [[part.texts, part.focus, part.questions] for part in parts],
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _stored(path: Path, number: int) -> NDArray[np.int32] | None:
    """The rows of a file, left on disk; None when there is none, or a damaged one."""
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return rows if rows.dtype == np.int32 and rows.ndim == 2 and len(rows) == number else None


def _padded(tokens: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    rows = np.full((len(tokens), max(map(len, tokens))), PADDING, dtype=np.int32)
    for row, numbers in zip(rows, tokens, strict=True):
        row[: len(numbers)] = numbers
    return rows


def _fitting(part: LabelledTexts, tokeniser: Tokeniser, limit: int) -> Iterator[list[int]]:
    whole = tokeniser([_read(*pair) for pair in zip(part.texts, part.questions, strict=True)])
    for row, numbers in enumerate(whole):
        if len(numbers) > limit:
            yield cut(part.texts[row], part.focus[row], part.questions[row], tokeniser, limit)
        else:
            yield numbers


def _read(text: str, question: str) -> str:
    return f"{text} {question}" if text and question else text or question


def cut(text: str, focus: Sequence[str], question: str, tokeniser: Tokeniser, limit: int) -> list[int]:
    """Tokens of the question after as many words as fit, those nearest to the focus."""
    words = text.split()
    nearest = _by_nearness(words, focus)

    def first_words(number: int) -> list[int]:
        return tokeniser([_read(" ".join(words[place] for place in sorted(nearest[:number])), question)])[0]

    fits, beyond = 0, len(words)
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        fits, beyond = (middle, beyond) if len(first_words(middle)) <= limit else (fits, middle)
    return first_words(fits)[-limit:]


def _by_nearness(words: Sequence[str], focus: Sequence[str]) -> list[int]:
    """Places of the words, the nearest to the focus first."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    line = " ".join(words)
    inside = np.zeros(len(words), dtype=bool)
    for part in filter(None, focus):
        place = line.find(part)
        while place >= 0:
            inside |= (starts[1:] - 1 > place) & (starts[:-1] < place + len(part))
            place = line.find(part, place + len(part))
    places = np.arange(len(words))
    anchors = np.flatnonzero(inside) if inside.any() else places[:1]
    distance = np.abs(places[:, None] - anchors).min(1)
    return [int(place) for place in np.argsort(distance, kind="stable")]
