"""Lemma lm:risk: E[F̂] = F, counted over every batch of a small law; and how far the default estimator is from it."""

from pathlib import Path

import pytest

from .finite_law import CONFUSION, PRIORS, estimated_risks, mean_and_deviation, rows, true_risk

TABLE = Path(__file__).parents[2] / "docs" / "results" / "lemma1.csv"


@pytest.mark.parametrize("truth", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("size", [1, 3, 12])
def test_the_estimated_risk_is_right_on_average(truth, size):
    mean, deviation = mean_and_deviation("M⁻¹b", truth, size)
    assert mean == pytest.approx(float(true_risk(truth)), abs=1e-12)
    assert deviation > 0.05


@pytest.mark.parametrize("truth", PRIORS.values(), ids=PRIORS)
def test_the_default_estimator_is_biased_and_yet_nearer(truth):
    """It stays on the simplex, which costs the lemma's unbiasedness and saves more in variance."""
    risk, (mean, deviation) = float(true_risk(truth)), mean_and_deviation("simplex_ls", truth, 20)
    _, unbiased = mean_and_deviation("M⁻¹b", truth, 20)
    assert abs(mean - risk) > 1e-3
    assert (mean - risk) ** 2 + deviation**2 < unbiased**2


def test_without_noise_the_default_is_off_by_its_ridge_alone():
    truth = PRIORS["even"]
    exact = estimated_risks("simplex_ls", (CONFUSION @ truth).unsqueeze(0))
    assert float(exact) == pytest.approx(float(true_risk(truth)), abs=2e-3)


def test_the_table_of_biases_is_up_to_date():
    assert TABLE.read_text().splitlines() == rows(), "python -m tests.theory.finite_law > docs/results/lemma1.csv"
