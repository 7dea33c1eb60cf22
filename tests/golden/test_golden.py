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

from ..helpers import run

GOLDEN = Path(__file__).parent / "traces.json"
COLUMNS = ("accuracy_pre", "accuracy_post", "learning_rate", "s_unc", "s_rep", "s")
QUICK = {"rate": {"low": 1e-3, "mid": 1e-2, "high": 3e-2}, "training_rounds": 3, "views": 2}


def traced(name: str, scenario_factory) -> dict[str, list[float]]:
    make = METHODS[name]
    fields = getattr(make, "func", make).model_fields
    settings = {setting: value for setting, value in QUICK.items() if setting in fields}
    rows = run(make(**settings), scenario_factory(kind="both", schedule="squ"), rounds=2)
    assert set(rows[0]) - {"client", "timestep", "n", "participated", "bytes_sent", "bytes_received"} <= set(SHAREABLE)
    return {column: [round(float(step[column].mean()), 6) for step in rows] for column in COLUMNS if column in rows[0]}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_trace_is_the_golden_one(name, scenario_factory):
    found = traced(name, scenario_factory)
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("FEDADE_REWRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps({**known, name: found}, indent=1, sort_keys=True) + "\n")
        return
    assert known[name].keys() == found.keys()
    for column, values in found.items():
        # One image of 160 is 0.006: another processor may turn a tie.
        np.testing.assert_allclose(values, known[name][column], atol=0.02, rtol=2e-2, err_msg=column)
