"""Texts as tokens: padded, cut around what they are about, and stored once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING
from fedade.data import dataset as tokenising
from fedade.data.dataset import Dataset, LabelledTexts, TextDataset, tokenised


class Letters:
    """A token per word: the number of its letters. It counts how often it is asked."""

    context = 50

    def __init__(self, fingerprint: str = "letters") -> None:
        self.fingerprint = fingerprint
        self.asked = 0

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        self.asked += 1
        return [[len(word) for word in text.split()] for text in texts]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder for nothing but token files."""
    return tmp_path / "tokens"


def dataset_of(*texts: str, focus: Sequence[str] = (), question: str = "") -> TextDataset:
    """Trained on all texts but the last, tested on that."""
    parts = [
        LabelledTexts(tuple(said), np.arange(len(said)), (tuple(focus),) * len(said), (question,) * len(said))
        for said in (texts[:-1], texts[-1:])
    ]
    return TextDataset("made-up", ("a", "b", "c"), *parts, partial="a few")


def test_rows_are_padded_on_the_right_to_the_longest_text(cache: Path) -> None:
    found = tokenised(dataset_of("a bb", "a", "ccc bb a"), Letters(), 10, cache)
    assert found.train.inputs.tolist() == [[1, 2, PADDING], [1, PADDING, PADDING]]
    assert found.test.inputs.tolist() == [[3, 2, 1]]
    assert found.train.inputs.dtype == np.int32
    assert (found.train.labels.tolist(), found.test.labels.tolist()) == ([0, 1], [0])
    assert (found.name, found.class_names, found.partial) == ("made-up", ("a", "b", "c"), "a few")


def test_the_second_time_nothing_is_tokenised_and_rows_stay_on_disk(cache: Path) -> None:
    dataset, tokeniser = dataset_of("a bb", "a", "ccc bb a"), Letters()
    first = tokenised(dataset, tokeniser, 10, cache)
    asked = tokeniser.asked
    second = tokenised(dataset, tokeniser, 10, cache)
    assert asked > 0
    assert tokeniser.asked == asked
    assert isinstance(second.train.inputs, np.memmap)
    assert np.array_equal(first.train.inputs, second.train.inputs)
    assert not second.train.inputs.flags.writeable


@pytest.mark.parametrize("change", ["text", "focus", "question", "tokeniser", "limit"])
def test_whatever_changes_the_rows_has_a_file_of_its_own(cache: Path, change: str) -> None:
    changed = {
        "text": dataset_of("a", "b", "d"),
        "focus": dataset_of("a", "b", "c", focus=("a",)),
        "question": dataset_of("a", "b", "c", question="why"),
    }
    tokenised(dataset_of("a", "b", "c"), Letters(), 9, cache)
    other = Letters("other" if change == "tokeniser" else "letters")
    tokenised(changed.get(change, dataset_of("a", "b", "c")), other, 8 if change == "limit" else 9, cache)
    assert len(list(cache.iterdir())) == 2
    assert other.asked > 0


@pytest.mark.parametrize("damage", ["truncated", "other", "rows"])
def test_a_damaged_file_is_made_again(cache: Path, damage: str) -> None:
    dataset = dataset_of("a bb", "a", "ccc bb a")
    whole = np.array(tokenised(dataset, Letters(), 10, cache).train.inputs)
    (path,) = cache.iterdir()
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-8])
    elif damage == "other":
        path.write_bytes(b"nothing of the kind")
    else:
        np.save(path, np.zeros((2, 3), dtype=np.int32))
    assert np.array_equal(tokenised(dataset, Letters(), 10, cache).train.inputs, whole)


def kept(text: str, focus: Sequence[str], question: str, limit: int) -> str:
    """What a text is cut to."""
    heard: list[str] = []

    class Hearing(Letters):
        def __call__(self, texts: Sequence[str]) -> list[list[int]]:
            heard.extend(texts)
            return super().__call__(texts)

    numbers = tokenising.cut(text, focus, question, Hearing(), limit)
    (said,) = {one for one in heard if [len(word) for word in one.split()] == numbers}
    return said


def test_a_cut_keeps_the_words_nearest_to_the_focus_and_the_whole_question() -> None:
    text = "one two THREE four five six seven EIGHT nine ten eleven"
    assert kept(text, ("THREE", "EIGHT"), "Which relation", 8) == "two THREE four seven EIGHT nine Which relation"
    assert kept(text, ("THREE four",), "", 4) == "two THREE four five"
    assert kept(text, ("absent",), "", 2) == "one two"


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 29), st.integers(0, 3))
def test_a_cut_fits_fills_the_limit_and_never_loses_the_end_of_the_question(
    length: int, limit: int, at: int, asked: int
) -> None:
    words = [f"{'w' * (place + 1)}" for place in range(length)]
    question = " ".join("?" * (40 + number) for number in range(asked))
    numbers = tokenising.cut(" ".join(words), (words[at % length],), question, Letters(), limit)
    whole = [*range(1, length + 1), *(40 + number for number in range(asked))]
    assert len(numbers) == min(limit, len(whole)) or len(whole) <= limit
    assert numbers[len(numbers) - min(asked, limit) :] == whole[len(whole) - min(asked, limit) :]
    assert [number for number in whole if number in numbers] == numbers  # in order


def test_a_text_beyond_the_context_is_an_error_unless_it_is_cut(cache: Path) -> None:
    dataset = dataset_of("a", "a " * 60, "a")
    for _ in range(2):  # from the tokeniser, then from the file
        with pytest.raises(FedadeError, match=r"has a text of 60 tokens.*set scenario.text.max_tokens to 50") as told:
            tokenised(dataset, Letters(), 100, cache)
        assert "\n" not in str(told.value)
    cut = tokenised(dataset, Letters(), 50, cache)
    assert isinstance(cut, Dataset)
    assert cut.input_shape == (50,)
