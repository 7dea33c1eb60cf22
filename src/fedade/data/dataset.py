"""What a dataset is: labelled arrays, in parts, that may live on disk; or texts, which become rows of token numbers,
made once and kept; and what is refused in a user's own."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING, Tokeniser

HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Labelled:
    """Inputs with their labels; inputs may be a memory-mapped array and are never copied whole. Images are `[N,
    channels, height, width]`, uint8 in 0..255."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: NDArray[np.int64]) -> "Labelled":
        return Labelled(self.inputs[rows], self.labels[rows])


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


Part = TypeVar("Part", Labelled, LabelledTexts)


@dataclass(frozen=True)
class _InParts(Generic[Part]):
    name: str
    class_names: tuple[str, ...]
    train: Part
    test: Part
    partial: str | None = None
    """Why this copy is incomplete, for example "30,000 of 50,000 training images"; None when it is whole."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


class TextDataset(_InParts[LabelledTexts]):
    """A named dataset of texts: what models are trained on, and what they are tested on."""


@dataclass(frozen=True)
class Dataset(_InParts[Labelled]):
    """A named dataset: what models are trained on, and what they are tested on."""

    one_part: bool = False
    """Whether the data came in one part, of which every fifth example of a class became the test part."""

    @property
    def whole(self) -> Labelled:
        inputs, labels = zip(*((part.inputs, part.labels) for part in (self.train, self.test)), strict=True)
        return Labelled(np.concatenate(inputs), np.concatenate(labels))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.inputs.shape[1:])


def checked_labels(values: ArrayLike, num_classes: int, source: object) -> NDArray[np.int64]:
    """The labels as a vector of int64 in `0 .. num_classes - 1`, or an error that names their source."""
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise FedadeError(f"{source}: labels have shape {list(labels.shape)}; expected one label per row")
    if len(labels) == 0:
        raise FedadeError(f"{source}: it holds no labels; expected at least one row")
    if labels.dtype.kind not in "iu":
        raise FedadeError(f"{source}: labels are {labels.dtype}; expected whole numbers, one per row")
    if len(wrong := np.flatnonzero((labels < 0) | (labels >= num_classes))):
        raise FedadeError(
            f"{source}: label {labels[wrong[0]]} in row {wrong[0]} is out of range; "
            f"{num_classes} classes are numbered 0 to {num_classes - 1}"
        )
    return labels.astype(np.int64)


def require_every_class(labels: NDArray[np.int64], class_names: Sequence[str], source: object) -> None:
    """Raise when a class has no example, of which nothing could be learnt, or when there is only one class."""
    if len(class_names) < 2:
        raise FedadeError(
            f"{source}: every example is of class {class_names[0]!r}; bring examples of two or more classes"
        )
    if len(absent := np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)):
        named = ", ".join(repr(class_names[index]) for index in absent[:3])
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise FedadeError(f"{source}: no training example of class {named}{more}; add examples or remove the class")


def held_out_rows(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Every fifth example of each class, in the order given: the test set of data that come without one."""
    held_out = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        held_out[np.flatnonzero(labels == label)[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]] = True
    if not held_out.any():
        raise FedadeError(
            f"no test examples were given and no class has the {HELD_OUT_EVERY} examples "
            "needed to hold one out; add a test part"
        )
    return held_out


def assemble(
    name: str, class_names: tuple[str, ...], train: Labelled, test: Labelled | None, source: Path | str
) -> Dataset:
    """A dataset of the two parts; without a test part every fifth training example of a class is held out."""
    one_part = test is None
    if test is None:
        held_out = held_out_rows(train.labels)
        test = Labelled(train.inputs[held_out], train.labels[held_out])
        train = Labelled(train.inputs[~held_out], train.labels[~held_out])
    require_every_class(train.labels, class_names, source)
    require_one_shape(train.inputs.shape[1:], test.inputs.shape[1:], source)
    return Dataset(name, class_names, train, test, one_part=one_part)


def require_one_shape(train: tuple[int, ...], test: tuple[int, ...], source: Path | str) -> None:
    if train != test:
        raise FedadeError(f"{source}: training inputs are {list(train)}, test inputs {list(test)}; make them agree")


def kept_array(path: Path, fits: Callable[[NDArray[Any]], bool], make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array of a file, left on disk; made where the file is missing, cut short, or does not hold what it should."""

    def mapped() -> NDArray[Any] | None:
        try:
            there = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return there if isinstance(there, np.memmap) and fits(there) else None

    if (array := mapped()) is None:
        storage.write_array(path, make())
        array = mapped()
    if array is None:
        raise FedadeError(f"cached array {path} cannot be read back; check the disk, or use another cache")
    return array


TextInput = Literal["evidence", "paraphrase", "pair", "template"]
"""How a fact is put into words (`fedade.data.known.lama`)."""
FORMAT_VERSION = 1
"""Part of every key: raised when the same texts would give other rows."""


def tokenised(dataset: TextDataset, tokeniser: Tokeniser, max_tokens: int, cache: Path) -> Dataset:
    """The dataset with inputs `[N, L]`, int32, padded on the right; L is its longest text, at most `max_tokens`. A
    longer text loses the words that are farthest from what it is about. The rows are memory-mapped from a file that is
    named by the texts, the tokeniser and the limit."""
    parts = (dataset.train, dataset.test)
    content = [[part.texts, part.focus, part.questions] for part in parts]
    identity = json.dumps([FORMAT_VERSION, tokeniser.fingerprint, max_tokens, content])
    path = cache / f"{dataset.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npy"
    number = sum(map(len, parts))
    rows: NDArray[np.int32] = kept_array(
        path,
        lambda there: there.dtype == np.int32 and there.ndim == 2 and len(there) == number,
        lambda: _padded([numbers for part in parts for numbers in _fitting(part, tokeniser, max_tokens)]),
    )
    if rows.shape[1] > tokeniser.context:
        raise FedadeError(
            f"{dataset.name} has a text of {rows.shape[1]} tokens, the model reads {tokeniser.context} at once; "
            f"set scenario.text.max_tokens to {tokeniser.context} or less"
        )
    train, test = np.split(rows, [len(dataset.train)])
    sides = Labelled(train, dataset.train.labels), Labelled(test, dataset.test.labels)
    return Dataset(dataset.name, dataset.class_names, *sides, dataset.partial)


def _padded(tokens: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    rows = np.full((len(tokens), max(map(len, tokens))), PADDING, dtype=np.int32)
    for row, numbers in zip(rows, tokens, strict=True):
        row[: len(numbers)] = numbers
    return rows


def _fitting(part: LabelledTexts, tokeniser: Tokeniser, limit: int) -> Iterator[list[int]]:
    whole = tokeniser([_read(*pair) for pair in zip(part.texts, part.questions, strict=True)])
    for row, numbers in enumerate(whole):
        asked = part.texts[row], part.focus[row], part.questions[row]
        yield cut(*asked, tokeniser, limit) if len(numbers) > limit else numbers


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
        for found in re.finditer(re.escape(part), line):
            inside |= (starts[1:] - 1 > found.start()) & (starts[:-1] < found.end())
    places = np.arange(len(words))
    anchors = np.flatnonzero(inside) if inside.any() else places[:1]
    distance = np.abs(places[:, None] - anchors).min(1)
    return [int(place) for place in np.argsort(distance, kind="stable")]
