"""Methods held against each other: average ranks, shares of the oracle's gain, paired differences, costs."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats

from fedade.reporting import names
from fedade.reporting.grid import Grid, Key

CONFIDENCE = 0.95
LEAST_PAIRS = 5
"""With fewer pairs no p is given: Wilcoxon's cannot fall below 0.125 then, and Student's rests on its assumptions."""
NOISE_DECIMALS = 9
"""Points are rounded to these: what remains of equal accuracies after float arithmetic must count as a tie."""
LEAST_GAIN = 0.1
"""Points that the oracle must gain over the source model before a share of its gain means anything."""
Name = TypeVar("Name", bound=Hashable)


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


class OracleShare(NamedTuple):
    """The part of the oracle's gain that a method reaches, over some scenarios."""

    share: float | None
    scenarios: int


class ComparedRow(NamedTuple):
    """A row over all scenarios of a comparison; means are over the cells that it finished."""

    row: Key
    oracle: bool
    finished: int
    accuracy_post: float | None
    """Mean accuracy after adaptation in percent; `accuracy_pre` is that before."""
    accuracy_pre: float | None
    rank: float | None
    share: OracleShare
    paired: Paired | None
    """This row − Fed-ADE, each p after Holm's correction over the baselines; None: there is nothing to compare with."""
    seconds: float | None
    megabytes: float | None


class Comparison(NamedTuple):
    """All rows, and on how much the numbers rest."""

    contenders: tuple[ComparedRow, ...]
    cells: int
    """Scenarios × seeds."""
    ranked_cells: int
    """Cells in which every ranked method finished."""


def compare(grid: Grid) -> Comparison:
    """Every row of the grid; oracles are compared, never ranked and never tested."""
    by_case = zip(*over_common_cases([grid.accuracies(row) for row in grid.ranked]), strict=True)
    complete = [dict(zip(grid.ranked, accuracies, strict=True)) for accuracies in by_case]
    ranks = average_ranks(complete)
    reference = next((row for row in grid.rows if names.is_reference(dict(row))), None)
    differences = {row: _difference(grid, row, reference) for row in grid.rows}
    tests = [differences[row] or Paired(0) for row in grid.ranked]
    corrected = zip(holm([test.t_test for test in tests]), holm([test.wilcoxon for test in tests]), strict=True)
    p_values = dict(zip(grid.ranked, corrected, strict=True))

    def contender(row: Key) -> ComparedRow:
        results, difference = grid.finished(row).values(), differences[row]
        t_test, wilcoxon = p_values.get(row, (None, None))
        return ComparedRow(
            row=row,
            oracle=row in grid.oracles,
            finished=len(results),
            accuracy_post=_mean(100 * result.accuracy_post for result in results),
            accuracy_pre=_mean(100 * result.accuracy_pre for result in results),
            rank=ranks.get(row),
            share=_share(grid, row),
            paired=None if difference is None else difference._replace(t_test=t_test, wilcoxon=wilcoxon),
            seconds=_mean(result.seconds for result in results),
            megabytes=_mean(result.bytes_sent / 1e6 for result in results),
        )

    return Comparison(tuple(map(contender, grid.rows)), len(grid.scenarios) * len(grid.seeds), len(complete))


def average_ranks(cells: Sequence[Mapping[Name, float]]) -> dict[Name, float]:
    """Mean rank by name over cells that all hold the same names; 1 is the highest score, ties share their ranks."""
    if not cells:
        return {}
    ordered = list(cells[0])
    scores = np.round([[cell[name] for name in ordered] for cell in cells], NOISE_DECIMALS)
    ranks = stats.rankdata(-scores, axis=1).mean(0)
    return dict(zip(ordered, ranks.tolist(), strict=True))


def oracle_share(scenarios: Iterable[tuple[float, float, float]]) -> OracleShare:
    """Σ (accuracy − source) / Σ (oracle − source) of (accuracy, source, oracle) in percent. Only scenarios count in
    which the oracle gains something: a prior cannot help where no prior has shifted."""
    gains = [(accuracy - source, oracle - source) for accuracy, source, oracle in scenarios]
    counted = [pair for pair in gains if pair[1] >= LEAST_GAIN]
    if not counted:
        return OracleShare(None, 0)
    gained, reachable = np.sum(counted, axis=0)
    return OracleShare(float(gained / reachable), len(counted))


def over_common_cases(rows: Sequence[Mapping[Name, float]]) -> list[list[float]]:
    """The values of each row in the cases that all have, in one order."""
    common = [case for case in rows[0] if all(case in row for row in rows)] if rows else []
    return [[row[case] for case in common] for row in rows]


def share_over_groups(groups: Iterable[Sequence[Mapping[Name, float]]]) -> OracleShare:
    """`oracle_share` of groups such as scenarios: each is the mean of what a row, the source and the oracle reached in
    the cases that all three have."""
    values = [over_common_cases(group) for group in groups]
    means = [[float(np.mean(own)) for own in group] for group in values if group[0]]
    return oracle_share((accuracy, source, oracle) for accuracy, source, oracle in means)


def _difference(grid: Grid, row: Key, reference: Key | None) -> Paired | None:
    if reference is None or row == reference:
        return None
    return paired(*over_common_cases([grid.accuracies(row), grid.accuracies(reference)]))


def _share(grid: Grid, row: Key) -> OracleShare:
    by_method = {dict(key)["method"]: key for key in reversed(grid.rows)}
    if not {"source", "oracle-prior"} <= by_method.keys():
        return OracleShare(None, 0)
    compared = [grid.accuracies(key) for key in (row, by_method["source"], by_method["oracle-prior"])]
    return share_over_groups(
        [{place: accuracy for place, accuracy in own.items() if place[0] == scenario} for own in compared]
        for scenario in grid.scenarios
    )


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.mean(known)) if known else None
