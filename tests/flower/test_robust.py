"""Centres that a minority cannot move far."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.flower.bounds import centred, median, trimmed_mean
from fedade.flower.server_app import adapt
from fedade.flower.settings import FlowerSettings

from .traces import told

numbers = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9)


@given(numbers)
def test_the_median_is_numpys(values):
    assert float(median(torch.tensor(values))) == pytest.approx(float(np.median(values)), abs=1e-4)


@given(numbers, st.floats(0, 0.49))
def test_a_trimmed_mean_drops_as_many_at_either_end(values, trim):
    cut = int(trim * len(values))
    kept = sorted(values)[cut : len(values) - cut]
    assert float(trimmed_mean(torch.tensor(values), trim)) == pytest.approx(float(np.mean(kept)), abs=1e-3)


@given(st.floats(-1e6, 1e6))
def test_one_of_five_cannot_leave_the_range_of_the_others(liar):
    values = torch.tensor([[1.0], [2.0], [3.0], [4.0], [liar]])
    assert 1.0 <= float(median(values)) <= 4.0
    assert 1.0 <= float(trimmed_mean(values, 0.2)) <= 4.0


def test_whatever_mean_a_method_takes_it_is_the_centre():
    values = {"a": torch.tensor([[1.0], [2.0], [90.0]])}
    found = centred(values, FlowerSettings(aggregation="median"))
    assert found["a"].tolist() == [[2.0]] * 3
    assert centred(values, FlowerSettings()) is values


@pytest.mark.parametrize("aggregation", ["median", "trimmed-mean"])
def test_a_run_with_a_robust_centre_differs_from_the_mean(make_task, make_grid, tmp_path, aggregation):
    rates = {}
    for name in ("mean", aggregation):
        task = make_task(protocol={"participation": 1.0}, flower={"aggregation": name, "trim": 0.3})
        adapt(task, make_grid(task), tmp_path / name)
        rates[name] = told(task, tmp_path / name)["s_rep"].to_pylist()[-1]
    assert np.isfinite(rates[aggregation])
    assert rates["mean"] != rates[aggregation]


def test_a_method_that_answers_each_participant_keeps_the_mean(make_task, make_grid, tmp_path):
    task = make_task(methods=["fed-ccfa"], flower={"aggregation": "median"})
    with pytest.raises(FedadeError, match="does not go with a method that answers each participant"):
        adapt(task, make_grid(task), tmp_path / "out")
