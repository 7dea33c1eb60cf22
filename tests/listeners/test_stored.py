"""Rows are read right at every moment of a run."""

import numpy as np
import pytest

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.paths import require_folder
from fedade.listeners import stored
from fedade.listeners.stored import means, rows_of, stored_cells

from .folders import STEPS, Cell


def timesteps(cell: Cell) -> list[int]:
    table = rows_of(cell.info)
    return [] if table is None else sorted(set(trace.column(table, "timestep").tolist()))


def test_rows_are_found_while_a_cell_runs_and_after(tmp_path):
    cell = Cell(tmp_path)
    assert (cell.stored.state, cell.stored.reached, timesteps(cell)) == ("waiting", 0, [])
    cell.write_rows(1, 3)
    cell.write_rows(4, 4)
    assert (cell.stored.state, cell.stored.reached, timesteps(cell)) == ("running", 4, [1, 2, 3, 4])
    cell.finish()
    assert (cell.stored.state, cell.stored.reached) == ("done", STEPS)
    assert rows_of(cell.info).equals(cell.table)


@pytest.mark.parametrize(("left", "again"), [((4, 7), (4, 5)), ((4, 5), (4, 9))])
def test_rows_that_a_continued_run_computed_again_count_once(tmp_path, left, again):
    cell = Cell(tmp_path)
    cell.write_rows(1, 3)
    cell.write_rows(*left)
    cell.write_rows(*again)
    last = max(left[1], again[1])
    assert rows_of(cell.info).num_rows == last * len(cell.rows[1]["client"])
    assert timesteps(cell) == list(range(1, last + 1))


def test_a_file_may_vanish_between_listing_and_reading(tmp_path, monkeypatch):
    cell = Cell(tmp_path)
    cell.write_rows(1, 3)
    info, read = cell.info, trace.read

    def finishing(path):
        monkeypatch.setattr(stored.trace, "read", read)
        cell.finish()
        return read(path)

    monkeypatch.setattr(stored.trace, "read", finishing)
    assert rows_of(info).equals(cell.table)


def test_rows_that_are_damaged_are_told(tmp_path):
    cell = Cell(tmp_path)
    storage.write_bytes(cell.path / "rows-000001-000002.parquet", b"no rows")
    with pytest.raises(FedadeError, match="not a readable trace"):
        rows_of(cell.info)


def test_cells_that_cannot_be_read_do_not_hide_the_others(tmp_path):
    Cell(tmp_path)
    storage.write_json(tmp_path / "cells" / "other" / "cell.json", {})
    (tmp_path / "cells" / "fed-ade-0.corrupt-1").mkdir()
    assert [one.info.title for one in stored_cells(tmp_path)] == ["fed-ade lin, seed 0"]


def test_means_are_of_single_numbers_that_are_known():
    rows = {"client": np.arange(2), "method": np.array(["a", "a"]), "prior": np.ones((2, 3)), "participated":
            np.array([True, False]), "accuracy_post": np.array([np.nan, 0.5]), "s": np.full(2, np.nan)}  # fmt: skip
    assert means(rows) == {"participated": 0.5, "accuracy_post": 0.5}


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FedadeError, match="holds no run and no suite"):
        require_folder(tmp_path)
