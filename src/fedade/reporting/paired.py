"""Paired differences: the same scenario and seed, two methods."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
LEAST_PAIRS = 5
"""With fewer pairs no p is given: Wilcoxon's cannot fall below 0.125 then, and Student's rests on its assumptions."""
NOISE_DECIMALS = 9
"""Points are rounded to these: what remains of equal accuracies after float arithmetic must count as a tie."""


class Paired(NamedTuple):
    """Differences `one − other` over pairs; what a handful of pairs cannot tell is None."""

    pairs: int
    difference: float | None = None
    """Their mean."""
    low: float | None = None
    high: float | None = None
    """The 95 % confidence interval of the mean, from Student's t."""
    effect: float | None = None
    """Cohen's d_z: the mean over the standard deviation of the differences."""
    t_test: float | None = None
    """p of the paired t-test, two-sided."""
    wilcoxon: float | None = None
    """p of Wilcoxon's signed-rank test, two-sided."""


def paired(one: Sequence[float], other: Sequence[float]) -> Paired:
    """Tests of two methods on the same cells, in the same order.

    Fewer than five pairs give no p. Without any difference both p are 1. Where all differences are equal and not zero,
    Student's t has no scale to measure by, and only Wilcoxon's test is left.
    """
    differences = np.round(np.subtract(one, other), NOISE_DECIMALS)
    pairs = len(differences)
    if pairs == 0:
        return Paired(0)
    mean = float(differences.mean())
    if pairs == 1:
        return Paired(1, mean)
    tested = pairs >= LEAST_PAIRS
    if not differences.any():
        return Paired(pairs, mean, t_test=1.0 if tested else None, wilcoxon=1.0 if tested else None)
    signed_ranks = float(stats.wilcoxon(differences).pvalue) if tested else None
    if np.ptp(differences) == 0:
        return Paired(pairs, mean, wilcoxon=signed_ranks)
    test = stats.ttest_1samp(differences, 0)
    interval = test.confidence_interval(CONFIDENCE)
    effect = mean / float(differences.std(ddof=1))
    t_test = float(test.pvalue) if tested else None
    return Paired(pairs, mean, float(interval.low), float(interval.high), effect, t_test, signed_ranks)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction (1979) over the tests that gave a p; the others stay None."""
    given = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(given):
        largest = max(largest, min(1.0, (len(given) - rank) * p))
        corrected[index] = largest
    return corrected
