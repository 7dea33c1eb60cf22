"""How long the texts of `lama-trex` are, what a limit cuts, and what a linear classifier still reads in them.

    python speed/text_lengths.py --model hf:NAME_OR_PATH [--input evidence]

The classifier (tokens and pairs of tokens, tf-idf, linear) stands in for a language model: it shows quickly whether a
limit takes away what tells the relations apart.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from fedade.core.tokens import PADDING
from fedade.data.dataset import Labelled, tokenised
from fedade.data.registry import load_texts
from fedade.models.text import tokeniser

LIMITS = (32, 40, 48, 64, 1024)
LABELLED = 400
"""Texts per relation that train, as in the preset."""


def main() -> None:
    """Print a row per limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", default="evidence")
    options = parser.parse_args()
    texts, reader = load_texts("lama-trex", None, options.input), tokeniser(options.model)
    with tempfile.TemporaryDirectory() as cache:
        whole = lengths(tokenised(texts, reader, LIMITS[-1], Path(cache)).train.inputs)
        print(f"tokens: mean {whole.mean():.1f}, median {np.median(whole):.0f}, 95% {np.quantile(whole, 0.95):.0f}")
        for limit in LIMITS:
            dataset = tokenised(texts, reader, limit, Path(cache))
            trained = dataset.train.select(np.arange(LABELLED * dataset.num_classes))
            accuracy = score(trained, dataset.test)
            error = 100 * np.sqrt(accuracy * (1 - accuracy) / len(dataset.test))
            print(f"limit {limit}: {100 * (whole > limit).mean():.1f}% cut, {100 * accuracy:.1f}% ± {error:.1f} right")


def lengths(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tokens of every text."""
    return np.asarray((rows != PADDING).sum(1))


def score(trained: Labelled, tested: Labelled) -> float:
    """Accuracy of a linear classifier on the texts that are streamed."""
    words = TfidfVectorizer(tokenizer=str.split, token_pattern=None, ngram_range=(1, 2), sublinear_tf=True)
    classifier = LinearSVC().fit(words.fit_transform(_as_words(trained.inputs)), trained.labels)
    return float(classifier.score(words.transform(_as_words(tested.inputs)), tested.labels))


def _as_words(rows: NDArray[np.int32]) -> list[str]:
    return [" ".join(map(str, row[row != PADDING].tolist())) for row in rows]


if __name__ == "__main__":
    main()
