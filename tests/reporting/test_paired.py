import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedade.reporting.comparison import Paired, holm, paired

from ..maths.samples import QUICK

accuracies = st.integers(0, 10_000).map(lambda value: value / 100)
pairs_of_accuracies = st.lists(st.tuples(accuracies, accuracies), min_size=5, max_size=9)
p_values = st.floats(0, 1)


@QUICK
@given(pairs_of_accuracies)
def test_tests_are_those_of_the_textbook(values: list[tuple[float, float]]) -> None:
    one, other = np.array(values).T
    found = paired(one.tolist(), other.tolist())
    # By hand, in hundredths as integers, so that equal differences are equal.
    differences = np.rint(100 * one).astype(int) - np.rint(100 * other).astype(int)
    n = len(differences)
    assert found.pairs == n
    assert found.difference == pytest.approx(differences.mean() / 100, abs=1e-8)
    if len(set(differences)) == 1:
        assert found.low is found.high is found.effect is None
        return
    scale = differences.std(ddof=1) / math.sqrt(n)
    t = differences.mean() / scale
    half = stats.t.ppf(0.975, n - 1) * scale / 100
    assert found.t_test == pytest.approx(2 * stats.t.sf(abs(t), n - 1), abs=1e-9)
    assert found.effect == pytest.approx(t / math.sqrt(n))
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half), abs=1e-7)
    assert found.wilcoxon == pytest.approx(stats.wilcoxon(differences).pvalue)


@QUICK
@given(pairs_of_accuracies)
def test_swapping_the_methods_swaps_the_sign_alone(values: list[tuple[float, float]]) -> None:
    one, other = ([pair[side] for pair in values] for side in (0, 1))
    forth, back = paired(one, other), paired(other, one)
    assert forth.difference == -back.difference
    assert forth.t_test == pytest.approx(back.t_test)
    assert forth.wilcoxon == pytest.approx(back.wilcoxon)


def test_wilcoxon_by_hand() -> None:
    # Five differences of one sign: 2 of the 32 sign patterns are as extreme.
    assert paired([2, 3, 5, 8, 12], [1, 1, 1, 1, 1]).wilcoxon == 2 / 32


def test_few_pairs_give_no_test() -> None:
    assert paired([], []) == Paired(0)
    assert paired([71.0], [70.0]) == Paired(1, 1.0)
    four = paired([71.0, 72.0, 74.0, 78.0], [70.0] * 4)
    assert (four.pairs, four.t_test, four.wilcoxon) == (4, None, None)
    assert four.difference == 3.75
    assert four.low < 3.75 < four.high, "an interval says itself how little is known"
    assert paired([70.0] * 4, [70.0] * 4) == Paired(4, 0.0)


def test_equal_methods_do_not_differ() -> None:
    found = paired([70.1, 80.2, 63.3, 50.0, 40.0], [70.1, 80.2, 63.3, 50.0, 40.0])
    assert found == Paired(5, 0.0, t_test=1.0, wilcoxon=1.0)


def test_float_noise_is_a_tie() -> None:
    assert paired([0.1 + 0.2, *[70.0] * 4], [0.3, *[70.0] * 4]).t_test == 1.0
    constant = paired([70.3, 0.3], [70.2, 0.2])
    assert constant.t_test is None
    assert constant.difference == pytest.approx(0.1)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([0.02, None, 0.5]) == [pytest.approx(0.04), None, 0.5]
    assert holm([]) == []


@QUICK
@given(st.lists(p_values, min_size=1, max_size=8))
def test_holm_lies_between_no_correction_and_bonferroni(raw: list[float]) -> None:
    corrected = holm(raw)
    order = np.argsort(raw, kind="stable")
    for index, p in enumerate(raw):
        assert p <= corrected[index] <= min(1.0, len(raw) * p)
    assert [corrected[index] for index in order] == sorted(corrected)


@QUICK
@given(st.lists(p_values, min_size=1, max_size=6), st.floats(0.001, 0.5))
def test_holm_rejects_what_the_step_down_procedure_rejects(raw: list[float], level: float) -> None:
    rejected = set()
    for step, index in enumerate(np.argsort(raw, kind="stable")):
        if (len(raw) - step) * raw[index] > level:
            break
        rejected.add(int(index))
    assert {index for index, p in enumerate(holm(raw)) if p <= level} == rejected
