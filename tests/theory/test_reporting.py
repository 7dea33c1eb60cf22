"""Exponents, figures and the page of theory, from made-up results."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedade.theory.page import regret_over_signal, regret_over_time, theory_markdown
from fedade.theory.results import TheoryResult, fit_power_law, over_seeds, theory_csv

HORIZONS = (25, 50, 100, 200)


def results(regret=lambda signal, horizon: signal ** (1 / 3) * horizon ** (2 / 3), rows=("fed-ade", "source")):
    found = []
    for place, schedule in enumerate(("lin", "squ")):
        for horizon in HORIZONS:
            for seed in (0, 1):
                signal = (1 + 3 * place + 0.1 * seed) * horizon**0.5
                measures = {"s": signal, "s_sd": 0.1, "regret_head_convex": regret(signal, horizon), "bound": 7.0}
                found += [TheoryResult({"suite": "x"}, row, seed, schedule, horizon, measures) for row in rows]
    return found


@settings(max_examples=40, deadline=None)
@given(exponent=st.floats(-3, 3), factor=st.floats(0.01, 100))
def test_a_planted_exponent_is_found(exponent, factor):
    x = np.array([1.0, 2.0, 5.0, 10.0])
    law = fit_power_law((factor * x**exponent).tolist(), x=x.tolist())
    assert law.exponents["x"].value == pytest.approx(exponent, abs=1e-6)
    np.testing.assert_allclose(law(x=x), factor * x**exponent, rtol=1e-6)
    assert law.points == 4


def test_two_exponents_are_told_apart():
    s, t = np.array([1.0, 2.0, 3.0, 1.0, 5.0]), np.array([10.0, 10.0, 20.0, 40.0, 80.0])
    law = fit_power_law((2 * s ** (1 / 3) * t ** (2 / 3)).tolist(), S=s.tolist(), T=t.tolist())
    assert law.exponents["S"].value == pytest.approx(1 / 3)
    assert law.exponents["T"].value == pytest.approx(2 / 3)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    noise = np.random.default_rng(0).normal(0, 0.3, (300, 6))
    x = np.geomspace(1, 32, 6)
    laws = [fit_power_law((x**0.7 * np.exp(one)).tolist(), x=x.tolist()) for one in noise]
    held = np.mean([law.exponents["x"].low <= 0.7 <= law.exponents["x"].high for law in laws])
    assert 0.91 <= held <= 0.99


def test_points_without_a_logarithm_are_left_out_and_said():
    law = fit_power_law([-1.0, 2.0, 4.0, 8.0], x=[1.0, 2.0, 4.0, 8.0])
    assert law.points == 3
    assert "1 of 4 points are not positive" in law.remark
    none = fit_power_law([-1.0, 0.0, float("nan")], x=[1.0, 2.0, 3.0])
    assert not none.exponents
    assert "too few points" in none.remark


def test_a_poor_fit_and_variables_that_move_together_are_said():
    assert "poor fit" in fit_power_law([1.0, 9.0, 2.0, 8.0, 3.0], x=[1.0, 2.0, 3.0, 4.0, 5.0]).remark
    t = [1.0, 2.0, 3.0, 4.0]
    assert "do not move on their own" in fit_power_law(t, a=t, b=[2 * value for value in t]).remark
    assert "do not move on their own" in fit_power_law(t, a=[3.0] * 4).remark


def test_figures_are_on_log_axes_and_name_the_exponents():
    figure = regret_over_time(results(rows=("fed-ade",)), "head_convex")
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == ["schedule lin", "schedule squ"]
    for axes in panels:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        words = [text.get_text() for text in axes.get_legend().get_texts()]
        # T^{1/2} within S̄ adds a sixth
        assert any(word.startswith("fed-ade: T^0.83 [") for word in words), words
        assert "$T^{2/3}$" in words


def test_a_figure_says_that_regret_is_not_positive():
    figure = regret_over_signal(results(lambda signal, horizon: -signal), "head_convex")
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert any("16 of 16 points are not positive" in word for word in words)


def test_the_page_has_tables_exponents_and_warnings():
    page = theory_markdown(results(), "head_convex", "Measured on made-up runs.")
    assert "S̄^0.33 [0.33, 0.33], T^0.67 [0.67, 0.67]" in page
    assert "| fed-ade | lin | 25 |" in page
    assert "Here only the head is convex" in page
    assert "None of these runs has one." in page  # no ceiling, no recovery
    assert page.count("| fed-ade | lin | 25 |") == 3  # paths, regret, bound: one row for both seeds


def test_seeds_are_averaged_and_what_some_lack_is_averaged_over_the_rest():
    one, two = (
        TheoryResult({}, "a", seed, "squ", 9, {"s": float(seed), **({"recovery_away": 4.0} if seed else {})})
        for seed in (0, 1)
    )
    (mean,) = over_seeds([one, two])
    assert mean.measures == {"s": 0.5, "recovery_away": 4.0}


def test_the_table_has_all_columns_and_leaves_empty_what_is_absent():
    rows = list(
        csv.DictReader(io.StringIO(theory_csv([*results()[:1], TheoryResult({"more": 1}, "b", 0, "lin", 5, {})])))
    )
    assert rows[0]["suite"] == "x"
    assert rows[1]["more"] == "1"
    assert rows[1]["s"] == ""
    assert list(rows[0])[-4:] == ["s", "s_sd", "regret_head_convex", "bound"]
