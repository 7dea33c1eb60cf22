"""The trace that a server writes of what clients told."""

import numpy as np
import pytest

from fedade.core import trace
from fedade.flower.rows import whole_trace
from fedade.reporting.answers import answer_measures


def row(client: int, timestep: int, **measures) -> dict:
    told = {"client": client, "timestep": timestep, "n": 4, "participated": 1, "bytes_sent": 0, "bytes_received": 0}
    return {**told, "severity": 0.0, **measures}


def test_a_client_that_was_away_leaves_rows_that_reports_can_read():
    rows = [row(0, t, s=0.1 * t, true_prior=[1 - 0.1 * t * t, 0.1 * t * t], accuracy_post=0.5) for t in (1, 2, 3, 4)]
    rows += [row(1, 1, s=0.1, true_prior=[0.5, 0.5], accuracy_post=0.5)]
    table = whole_trace(rows, {"method": "fed-ade", "seed": 0}, [1, 1], 4)
    priors = trace.column(table, "true_prior")
    assert priors.shape == (8, 2)
    assert np.isnan(priors[trace.column(table, "client") == 1][1:]).all()
    assert answer_measures(table)["follows_drift"] == pytest.approx(1)


def test_where_nobody_tells_class_frequencies_there_is_nothing_to_hold_signals_against():
    table = whole_trace([row(0, t, s=0.1 * t) for t in (1, 2, 3, 4)], {"method": "tent", "seed": 0}, [1], 4)
    assert "follows_drift" not in answer_measures(table)
