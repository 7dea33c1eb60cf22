"""Calibration, worst cases, expectations and drift, from traces."""

import numpy as np
import pyarrow as pa
import pytest

from fedade.core import trace
from fedade.reporting.answers import answer_measures, answer_table, calibration_error, class_accuracies, true_drift
from fedade.reporting.results import BEYOND_THE_ORACLE, result, rows, run_table, run_tables

from .made_up import made_up_trace


def small_trace(**changed: object) -> pa.Table:
    """Two clients at two timesteps, ten samples of two classes each."""
    columns = {
        "client": [0, 1, 0, 1],
        "timestep": [1, 1, 2, 2],
        "accuracy_post": [0.5, 1.0, 0.7, 0.8],
        "accuracy_pre": [0.5, 1.0, 0.7, 0.8],
        "bytes_sent": [0] * 4,
        "confidence": [0.6, 0.9, 0.7, 0.7],
        "nll": [0.7, 0.1, 0.4, 0.4],
        "brier": [0.4, 0.1, 0.2, 0.2],
        "severity": [0, 0, 5, 0],
        "true_prior": [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5], [0.4, 0.6]],
        "class_samples": [[5, 5], [10, 0], [5, 5], [4, 6]],
        "class_hits": [[5, 0], [10, 0], [5, 2], [4, 4]],
    }
    bins = np.zeros((4, 10))
    bins[:, 8] = 10
    hits = np.zeros((4, 10))
    hits[:, 8] = [5, 10, 7, 8]
    columns |= {"confidence_samples": bins.tolist(), "confidence_hits": hits.tolist()}
    columns |= {"confidence_sums": (0.85 * bins).tolist(), **changed}
    return pa.table(columns)


def test_by_hand():
    found = answer_measures(small_trace())
    assert found["nll"] == pytest.approx(0.4)
    assert found["brier"] == pytest.approx(0.225)
    assert found["expected"] == pytest.approx(72.5)
    assert found["off_by"] == pytest.approx(7.5)
    assert found["ece"] == pytest.approx(10)  # 30 of 40 right at a confidence of 0.85
    assert found["worst_client"] == pytest.approx(60)
    assert found["worst_class"] == pytest.approx(100 * 6 / 16)
    assert "follows_drift" not in found, "it has no signal"


def test_over_and_under_confidence_in_different_bins_do_not_cancel():
    samples, hits, sums = np.array([10.0, 10.0]), np.array([5.0, 9.0]), np.array([6.0, 8.0])
    assert calibration_error(samples, hits, sums) == pytest.approx(0.1)
    assert calibration_error(0 * samples, 0 * hits, 0 * sums) is None


def test_a_class_that_never_came_has_no_accuracy():
    table = small_trace(class_samples=[[1, 0]] * 4, class_hits=[[1, 0]] * 4)
    np.testing.assert_array_equal(class_accuracies(table), [1, np.nan])


def test_drift_is_measured_within_a_client():
    np.testing.assert_allclose(true_drift(small_trace()), [np.nan, np.nan, 1.0, 0.6])
    later = small_trace(timestep=[1, 1, 3, 3])
    assert np.isnan(true_drift(later)).all(), "between are timesteps that nobody saw"


@pytest.mark.parametrize("way", [1, -1])
def test_a_signal_that_follows_the_drift_is_correlated_with_it(way):
    clients = pa.concat_tables(
        [
            small_trace(client=[2 * i, 2 * i + 1] * 2, severity=[0, 0, i, 0], s=[0.5, 0.5, way * i, 0.0])
            for i in range(1, 6)
        ]
    ).filter(pa.array([True, False, True, False] * 5))
    assert answer_measures(clients)["follows_drift"] == pytest.approx(way)
    still = small_trace(s=[0.5] * 4)
    assert "follows_drift" not in answer_measures(still), "a signal that never changes follows nothing"


def test_a_trace_of_an_earlier_version_has_no_such_table():
    bare = small_trace().select(["client", "timestep", "accuracy_post", "accuracy_pre", "bytes_sent"])
    found = rows([result(bare, "source", 0, False, 1.0)])
    assert [table.title for table in run_tables(found)] == [""]
    assert answer_table({"source": {}}, ()) is None


def test_the_best_is_marked_and_oracles_are_not():
    measures = {"a": {"nll": 0.5, "worst_client": 60.0}, "b": {"nll": 0.4, "worst_client": 50.0}, "o": {"nll": 0.1}}
    table = answer_table(measures, {"o"})
    marked = {row.name: [cell.best for cell in row.cells] for row in table.rows}
    assert marked == {"a": [False, True], "b": [True, False], "o": [False, False]}


def test_one_seed_has_no_deviation_and_several_have_one():
    tables = [made_up_trace("source", seed, "lin", clients=3, steps=4) for seed in (0, 1)]
    found = [result(table, "source", seed, False, 1.0) for seed, table in enumerate(tables)]
    assert "±" not in [column.name for column in run_table(rows(found[:1])).columns]
    assert "±" in [column.name for column in run_table(rows(found)).columns]


def test_shares_beyond_the_oracle_are_explained():
    traces = {name: made_up_trace(name, 0, "lin", clients=3, steps=4) for name in ("source", "fed-ade", "oracle-prior")}
    reached = {"source": 0.5, "oracle-prior": 0.6, "fed-ade": 0.7}
    found = [
        result(table, name, 0, name == "oracle-prior", 1.0)._replace(accuracy_post=reached[name])
        for name, table in traces.items()
    ]
    assert BEYOND_THE_ORACLE in run_table(rows(found)).notes
    modest = [one._replace(accuracy_post=min(one.accuracy_post, 0.6)) for one in found]
    assert BEYOND_THE_ORACLE not in run_table(rows(modest)).notes


def test_bins_of_the_trace_survive_its_file(tmp_path):
    table = made_up_trace("fed-ade", 0, "squ", clients=3, steps=4)
    trace.write(tmp_path / "trace.parquet", table)
    assert answer_measures(trace.read(tmp_path / "trace.parquet")) == answer_measures(table)
