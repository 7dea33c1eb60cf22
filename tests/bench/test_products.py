"""What a suite leaves for people, from cells that were made up."""

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from fedade.cli.main import app
from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.core.events import Listener
from fedade.experiments.identifying import changed_cell
from fedade.experiments.suites import SUITES
from fedade.experiments.suites.grid import select
from fedade.experiments.suites.paper import SIZES
from fedade.products import suite_products
from fedade.products.results_file import add_results
from fedade.products.suite_folder import claim_suite
from fedade.reporting import answers, figures
from fedade.reporting.result_lines import labels_of, read_lines
from fedade.runner.store import CellFolder, examine, records


def made_up(folder, cell, accuracy, rows=None, weights=""):
    """A finished cell that always had the same accuracy."""
    place = CellFolder(folder, cell)
    place.begin({"weights": weights})
    scenario = cell.experiment.scenario
    count = scenario.num_clients * scenario.num_timesteps if rows is None else rows
    columns = {"accuracy_post": np.full(count, accuracy), "accuracy_pre": np.zeros(count), "bytes_sent": np.ones(count)}
    table = trace.to_table(columns).replace_schema_metadata({"seconds": "1.5"})
    trace.write(place.trace, table)
    return place


@pytest.fixture
def drawn(monkeypatch):
    """Every figure of accuracy that is drawn: panels by title."""
    seen = {}
    draw = figures.accuracy_against

    def noted(panels, title):
        seen[title] = {panel.setting: {curve.name: curve for curve in panel.curves} for panel in panels}
        return draw(panels, title)

    monkeypatch.setattr(figures, "accuracy_against", noted)
    return seen


def finish(suite, folder):
    return suite_products.finish(SUITES[suite], folder, Listener())


def test_the_rates_figure_has_a_point_for_every_bound(tmp_path, drawn):
    cells = select(SUITES["fig-lr"].cells((0, 1)), ["dataset=cifar10", "schedule=lin"])
    for cell in cells:
        low, high = (float(cell.labels.get(name, 0)) for name in ("low", "high"))
        made_up(tmp_path, cell, 0.5 + 1000 * low + 100 * high + 0.01 * cell.seed).finish()
    assert tmp_path / "figures" / "rates-cifar10.png" in finish("fig-lr", tmp_path)
    panels = drawn["cifar10: accuracy against the learning rate"]
    lows, highs = panels["η_min of Fed-ADE"]["lin"], panels["η_max of Fed-ADE"]["lin"]
    assert lows.settings == (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
    assert highs.settings == (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
    assert lows.means == pytest.approx([100 * (0.515 + 1000 * low) for low in lows.settings])
    assert highs.means == pytest.approx([100 * (0.51 + 100 * high) for high in highs.settings])
    assert lows.deviations == pytest.approx([np.sqrt(0.5)] * 7)
    assert len(panels["η of FixLR"]["lin"].settings) == 10


def test_the_dirichlet_figure_has_a_curve_for_every_method(tmp_path, drawn):
    for cell in select(SUITES["fig-dirichlet"].cells((0,)), ["schedule=squ"]):
        made_up(tmp_path, cell, 0.5).finish()
    written = finish("fig-dirichlet", tmp_path)
    assert {path.name for path in written} >= {"clients.png", "accuracy-squ.png", "results.csv"}
    (panel,) = drawn["schedule squ: accuracy against how much clients differ"].values()
    assert {name: curve.settings for name, curve in panel.items()} == dict.fromkeys(
        ("FixLR(Mid)", "Fed-ADE", "source", "oracle-prior"), (0.05, 0.1, 0.5, 1.0, 10.0, 100.0)
    )


def test_the_labelled_data_figure_has_a_curve_for_body_head_and_both(tmp_path, drawn):
    for cell in select(SUITES["fig-labelled"].cells((100,)), ["schedule=squ"]):
        made_up(tmp_path, cell, 0.5).finish()
    assert {path.name for path in finish("fig-labelled", tmp_path)} >= {"accuracy-squ.png", "results.csv"}
    (panel,) = drawn["schedule squ: accuracy against labelled data"].values()
    assert {name: curve.settings for name, curve in panel.items()} == dict.fromkeys(
        ("Fed-ADE", "Fed-ADE (head)", "Fed-ADE (body)", "source", "oracle-prior"), SIZES
    )


def test_results_are_in_the_order_of_the_suite_and_open_or_damaged_cells_are_no_results(tmp_path):
    done, failed, begun, damaged, *_ = cells = SUITES["smoke"].cells((0,))
    for cell in cells[:4]:
        made_up(tmp_path, cell, 0.25)
    CellFolder(tmp_path, failed).fail(FedadeError("no luck"))
    for cell in (damaged, done):
        CellFolder(tmp_path, cell).finish()
    (CellFolder(tmp_path, damaged).trace).write_bytes(b"")
    (tmp_path / "cells" / "abc").mkdir()
    (tmp_path / "cells" / "abc" / "cell.json").write_text("{")
    finish("smoke", tmp_path)
    with (tmp_path / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["row"], line["status"], line["accuracy_post"], line["reason"]) for line in lines] == [
        (done.labels["row"], "done", "0.25", ""),
        (failed.labels["row"], "failed", "", "no luck"),
    ]
    states = {one.cell.labels["row"]: one.status.state for one in records(tmp_path)}
    assert states == {
        cell.labels["row"]: state
        for cell, state in zip((done, failed, begun, damaged), ("done", "failed", "open", "damaged"), strict=True)
    }


def test_finished_cells_are_added_to_a_file_of_results(tmp_path):
    done, failed, later = SUITES["smoke"].cells((0,))[:3]
    folder, results = tmp_path / "suite", tmp_path / "results"
    for cell in (done, failed):
        made_up(folder, cell, 0.25)
    CellFolder(folder, done).finish()
    CellFolder(folder, failed).fail(FedadeError("no luck"))
    assert add_results(folder, results) == (results / "smoke.csv", 1, 0, 0, [])
    before = (results / "smoke.csv").read_bytes()
    add_results(folder, results)
    assert (results / "smoke.csv").read_bytes() == before, "adding again changes nothing"
    (results / "smoke.csv").write_text(before.decode().replace(done.address, "x").replace(",20,", ",19,"))
    assert add_results(folder, results).replaced == 0, "19 clients are another cell"
    (results / "smoke.csv").write_text(re.sub(r"False,\w+,\w*,\w+", "False,x,,y", before.decode()))
    assert add_results(folder, results).replaced == 1
    assert (results / "smoke.csv").read_bytes() == before
    (line,) = read_lines(results / "smoke.csv")
    expected = {"row": done.labels["row"], "accuracy_post": "0.25", "clients": "20", "timesteps": "16", "rounds": "1"}
    assert expected.items() <= line.items()
    assert line["cell"] == done.address
    assert {"commit", "device", "precision", "started", "seconds", "accuracy_fresh"} <= line.keys()
    made_up(folder, later, 0.5).finish()
    add_results(folder, results, "mine")
    assert [one["row"] for one in read_lines(results / "mine.csv")] == [done.labels["row"], later.labels["row"]]
    with pytest.raises(FedadeError, match="holds no finished cell"):
        add_results(tmp_path / "nothing", results)


def test_rows_that_were_run_with_other_weights_are_named(tmp_path):
    one, other = SUITES["smoke"].cells((0,))[:2]
    rows = one.labels["row"], other.labels["row"]
    made_up(tmp_path / "first", one, 0.25, weights="a").finish()
    made_up(tmp_path / "same", other, 0.25, weights="a").finish()
    made_up(tmp_path / "again", other, 0.25, weights="b").finish()
    assert add_results(tmp_path / "first", tmp_path).incomparable == []
    assert add_results(tmp_path / "same", tmp_path).incomparable == []
    assert add_results(tmp_path / "again", tmp_path).incomparable == [rows]
    (tmp_path / "again" / "suite.json").write_text("{}")
    told = CliRunner().invoke(app, ["results", "add", str(tmp_path / "again"), "--results", str(tmp_path)])
    assert told.exit_code == 0
    assert f"different trainings of the model, first {rows[0]}, {rows[1]}" in " ".join(told.stderr.split())


def test_a_trace_without_all_its_rows_is_no_result(tmp_path):
    cell = SUITES["smoke"].cells((0,))[0]
    place = made_up(tmp_path, cell, 0.5, rows=7)
    with pytest.raises(FedadeError, match="has 7 rows, not 320"):
        place.finish()
    assert examine(place.path).state == "open"


def test_a_suite_without_results_leaves_no_list(tmp_path):
    claim_suite(tmp_path, SUITES["smoke"])
    assert finish("smoke", tmp_path) == []
    assert json.loads((tmp_path / "suite.json").read_text())["suite"] == "smoke"
    assert finish("theory", tmp_path) == []


def test_a_model_that_nobody_trains_here_has_lines_of_results(tmp_path):
    trained_elsewhere = ["scenario.pretraining=none", "scenario.model=import:torch.nn:Flatten"]
    cell = changed_cell(SUITES["field"].cells((0,))[0], trained_elsewhere)
    made_up(tmp_path, cell, 0.5).finish()
    finish("field", tmp_path)
    assert [line["epochs"] for line in read_lines(tmp_path / "results.csv")] == [""]


def test_what_answers_are_worth_is_measured_and_does_not_tell_lines_apart(tmp_path):
    cell = SUITES["smoke"].cells((0,))[0]
    count = cell.experiment.scenario.num_clients * cell.experiment.scenario.num_timesteps
    bins = np.ones((count, 10))
    columns = {name: np.full(count, 0.5) for name in ("accuracy_post", "accuracy_pre", "confidence", "nll", "brier")}
    columns |= dict.fromkeys(("confidence_samples", "confidence_hits", "confidence_sums"), bins)
    columns |= dict.fromkeys(("class_samples", "class_hits"), bins) | {"bytes_sent": np.ones(count)}
    columns |= {name: np.arange(count) % 3 for name in ("client", "timestep")}
    place = CellFolder(tmp_path, cell)
    place.begin({})
    trace.write(place.trace, trace.to_table(columns).replace_schema_metadata({"seconds": "1.5"}))
    place.finish()
    finish("smoke", tmp_path)
    (line,) = read_lines(tmp_path / "results.csv")
    assert (line["nll"], line["brier"], line["expected"]) == ("0.5", "0.5", "50")
    assert not {"answers", *answers.NAMES} & labels_of(line).keys()
