"""How good a client's answers to one batch are, beyond accuracy: what labels say of probabilities."""

from typing import NamedTuple

import torch
from torch import Tensor

CONFIDENCE_BINS = 10
"""Bins of equal width from 0 to 1, by which confidence is held against accuracy."""
_LEAST_PROBABILITY = 1e-7
"""A class that was ruled out and is right costs as much as one of this probability: its true cost is infinite."""


class Quality(NamedTuple):
    """Columns of the trace: a client's answers to a batch after adaptation; or those of all clients, `[A, ...]`."""

    confidence: Tensor
    """Mean probability of the class that was answered: the accuracy that the model itself expects."""
    nll: Tensor
    """Mean negative logarithm of the right class's probability."""
    brier: Tensor
    """Mean squared distance of the probabilities to the right answer, from 0 to 2."""
    confidence_samples: Tensor
    """Answers by confidence, `[10]`."""
    confidence_hits: Tensor
    """Those that are right."""
    confidence_sums: Tensor
    """The sum of their confidences."""
    class_samples: Tensor
    """Samples by their true class, `[K]`."""
    class_hits: Tensor
    """Those that are answered right."""


LABELLED_COLUMNS = ("nll", "brier", "confidence_hits", "class_samples", "class_hits")
"""Columns that follow from labels; the others follow from the answers alone."""


def quality(probabilities: Tensor, labels: Tensor) -> Quality:
    """Of the answers `[n, K]` to a batch with labels `[n]`."""
    probabilities = probabilities.float()
    confidence, answers = probabilities.max(-1)
    right = labels[:, None] == torch.arange(probabilities.shape[-1], device=labels.device)
    hits = (answers == labels)[:, None]
    places = (confidence * CONFIDENCE_BINS).long().clamp(0, CONFIDENCE_BINS - 1)
    bins = places[:, None] == torch.arange(CONFIDENCE_BINS, device=labels.device)
    of_right = torch.where(right, probabilities, 0).sum(-1)
    return Quality(
        confidence=confidence.mean(dtype=torch.float64),
        nll=-of_right.clamp_min(_LEAST_PROBABILITY).log().mean(dtype=torch.float64),
        brier=(probabilities - right.float()).square().sum(-1).mean(dtype=torch.float64),
        confidence_samples=_counted(bins),
        confidence_hits=_counted(bins & hits),
        confidence_sums=torch.where(bins, confidence[:, None], 0).sum(0),
        class_samples=_counted(right),
        class_hits=_counted(right & hits),
    )


def _counted(flags: Tensor) -> Tensor:
    return flags.sum(0, dtype=torch.int32)
