"""Traces of the simulator and of Flower, side by side."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from fedade.core import trace
from fedade.experiments.cell import cells_of
from fedade.flower.settings import FlowerTask
from fedade.products.run_folder import run
from fedade.runner.store import CellFolder

TOLERANCE = 1e-5
"""Single precision, computed for one client here and for many at once there."""


def simulated(task: FlowerTask, folder: Path) -> pa.Table:
    """What the simulator makes of the same task."""
    run(task.experiment, folder)
    return told(task, folder)


def told(task: FlowerTask, out: Path) -> pa.Table:
    """The trace in a run folder."""
    (cell,) = cells_of(task.experiment)
    return trace.read(CellFolder(out, cell).trace)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Every column of the simulator's trace, to float rounding."""
    assert set(found.column_names) == set(expected.column_names)
    assert found["method"].to_pylist() == expected["method"].to_pylist()
    for name in set(expected.column_names) - {"method"}:
        np.testing.assert_allclose(
            trace.column(found, name), trace.column(expected, name), rtol=TOLERANCE, atol=TOLERANCE, err_msg=name
        )
