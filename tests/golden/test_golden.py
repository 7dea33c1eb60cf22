"""Numbers do not move by accident: short traces per method, with a tolerance across machines.

`make golden` rewrites them; the difference is reviewed and marked `[numbers]` in the CHANGELOG.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedade.flower.settings import SHAREABLE
from fedade.methods import METHODS

from ..helpers import quick, run

GOLDEN = Path(__file__).parent / "traces.json"
COLUMNS = ("accuracy_pre", "accuracy_post", "learning_rate", "s_unc", "s_rep", "s")


def traced(name: str, scenario_factory) -> dict[str, list[float]]:
    rows = run(quick(name), scenario_factory(kind="both", schedule="squ"), rounds=2)
    assert set(rows[0]) - {"client", "timestep", "n", "participated", "bytes_sent", "bytes_received"} <= set(SHAREABLE)
    return {column: [round(float(step[column].mean()), 6) for step in rows] for column in COLUMNS if column in rows[0]}


def compare(found: dict[str, list[float]], known: dict[str, list[float]]) -> None:
    """Every column within 2 % of its own scale; accuracies within 0.02, as another processor may turn a tie."""
    assert known.keys() == found.keys()
    for column, values in found.items():
        scale = 1 if column.startswith("accuracy") else max(map(abs, known[column]))
        np.testing.assert_allclose(values, known[column], atol=0.02 * scale, rtol=0, err_msg=column)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_trace_is_the_golden_one(name, scenario_factory):
    found = traced(name, scenario_factory)
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("FEDADE_REWRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps({**known, name: found}, indent=1, sort_keys=True) + "\n")
        return
    compare(found, known[name])


@pytest.mark.parametrize("column", ["learning_rate", "s_unc", "s_rep", "s", "accuracy_post"])
def test_a_column_of_zeros_is_noticed(column):
    known = json.loads(GOLDEN.read_text())["fed-ade"]
    compare(known, known)
    with pytest.raises(AssertionError, match=column):
        compare({**known, column: [0.0] * len(known[column])}, known)
