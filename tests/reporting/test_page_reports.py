"""`fedade report` on folders of runs and suites, whole and damaged."""

import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedade.cli.main import main
from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.experiments.settings import Experiment
from fedade.experiments.suites import suite_of
from fedade.experiments.suites.grid import select
from fedade.products.run_folder import write_report
from fedade.products.suite_folder import claim_suite, printed_tables, write_any_report
from fedade.reporting.figures import CHARTS
from fedade.reporting.results import result
from fedade.runner.store import CellFolder

from .made_up import made_up_trace

METHODS = ("source", "fed-ade", "oracle-prior")
SIZES = {"clients": 4, "steps": 5, "samples": 10}


@pytest.fixture
def run_folder(tmp_path) -> Path:
    """What a finished run leaves, with made-up numbers."""
    folder = tmp_path / "run"
    experiment = Experiment(methods=METHODS, seeds=(0, 1))
    tables = {(name, seed): made_up_trace(name, seed, "lin", **SIZES) for name in METHODS for seed in (0, 1)}
    results = [
        result(table, name, seed, name == "oracle-prior", 1.0).asdict() for (name, seed), table in tables.items()
    ]
    storage.write_yaml(folder / "config.yaml", experiment.as_plain())
    storage.write_json(folder / "provenance.json", {"versions": {"fedade": "0.1.0"}, "device": "cpu"})
    storage.write_json(folder / "summary.json", {"run_dir": str(folder), "results": results})
    trace.write(folder / "trace.parquet", trace.concatenate(list(tables.values())))
    return folder


@pytest.fixture
def suite_folder(tmp_path) -> Path:
    """Six finished cells of the smoke suite, with made-up numbers."""
    folder = tmp_path / "suite"
    claim_suite(folder, suite_of("smoke"))
    cells = select(suite_of("smoke").cells([0]), ["kind=label", "schedule=lin,squ", "row=source,Fed-ADE,oracle-prior"])
    assert len(cells) == 6
    for cell in cells:
        place = CellFolder(folder, cell)
        place.begin({})
        scenario = cell.experiment.scenario
        sizes = {"clients": scenario.num_clients, "steps": scenario.num_timesteps, "samples": scenario.samples}
        table = made_up_trace(cell.method, cell.seed, scenario.schedule, **sizes)
        trace.write(place.trace, table.replace_schema_metadata({"seconds": "1.5"}))
        place.finish()
    return folder


def index_of(page: Path) -> dict:
    return json.loads(re.search(r'id="index">(.*?)</script>', page.read_text(), re.S).group(1))


def test_the_page_of_a_run_holds_every_method_and_seed(run_folder):
    page = write_any_report(run_folder)
    assert page == run_folder / "report.html"
    (scene,) = index_of(page)["scenes"]
    assert {(track["method"], track["seed"]) for track in scene["tracks"]} == {(m, s) for m in METHODS for s in (0, 1)}
    assert [one["oracle"] for one in index_of(page)["methods"]] == [False, False, True]
    text = page.read_text()
    assert "fedade run " in text
    assert "dataset: digits" in text, "the configuration is there"
    assert {path.stem for path in (run_folder / "figures").iterdir()} == set(CHARTS)


def test_the_page_of_a_suite_offers_its_scenarios_and_tables(suite_folder):
    page = write_any_report(suite_folder)
    index = index_of(page)
    assert {scene["labels"]["schedule"] for scene in index["scenes"]} == {"Lin.", "Squ."}
    assert [one["name"] for one in index["methods"]] == ["Fed-ADE", "source", "oracle-prior"]
    text = page.read_text()
    assert "average rank" in text
    assert f"fedade bench smoke --out {suite_folder}" in text


def test_an_unfinished_suite_says_how_much_is_missing(suite_folder):
    total = len(suite_of("smoke").cells([0]))
    text = write_any_report(suite_folder).read_text()
    assert f"{total - 6} of the suite&#x27;s {total} cells for seeds 0 have not been run" in text


def test_a_damaged_cell_is_named_and_the_others_are_reported(suite_folder):
    damaged = sorted((suite_folder / "cells").glob("*/trace.parquet"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    page = write_any_report(suite_folder)
    assert f"Left out: {damaged} has changed since it was written" in page.read_text()
    assert sum(len(scene["tracks"]) for scene in index_of(page)["scenes"]) == 5


def test_failed_cells_are_counted(suite_folder):
    cell = select(suite_of("smoke").cells([0]), ["kind=label", "schedule=lin", "row=FTH"])[0]
    place = CellFolder(suite_folder, cell)
    place.begin({})
    place.fail(FedadeError("the model diverged"))
    text = write_any_report(suite_folder).read_text()
    assert "1 cells failed" in text
    assert "the model diverged" in text


def test_tables_are_printed_in_every_format(suite_folder):
    assert "Fed-ADE" in printed_tables(suite_folder, "text")
    assert printed_tables(suite_folder, "csv").startswith("table,row,")
    with pytest.raises(FedadeError, match="no table format 'excel'"):
        printed_tables(suite_folder, "excel")


def corrupt_trace(folder: Path) -> str:
    (folder / "trace.parquet").write_bytes(b"PAR1 not really")
    return "is not a readable trace"


def foreign_table(folder: Path) -> str:
    pq.write_table(pa.table({"price": [1.0, 2.0]}), folder / "trace.parquet")
    return "is no trace: it lacks method, seed, client, timestep, n, accuracy_post, accuracy_pre"


def no_summary(folder: Path) -> str:
    (folder / "summary.json").unlink()
    return "holds no finished run"


def other_summary(folder: Path) -> str:
    storage.write_json(folder / "summary.json", {"results": [{"method": "source", "speed": 1}]})
    return "is no summary of this version"


def broken_summary(folder: Path) -> str:
    (folder / "summary.json").write_text("{")
    return "is not readable JSON"


@pytest.mark.parametrize("damage", [corrupt_trace, foreign_table, no_summary, other_summary, broken_summary])
def test_a_damaged_run_is_one_line(run_folder, damage, monkeypatch, capfd):
    told = damage(run_folder)
    monkeypatch.setattr(sys, "argv", ["fedade", "report", str(run_folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capfd.readouterr().err
    assert told in error
    assert str(run_folder) in error
    assert len(error.strip().splitlines()) == 1


def test_a_suite_of_another_format_is_refused(suite_folder):
    storage.write_json(suite_folder / "suite.json", {"suite": "smoke", "version": "9.9", "schema": 99})
    with pytest.raises(FedadeError, match=r"schema 99 of fedade 9\.9.*report it with the version that made it"):
        write_any_report(suite_folder)


def test_an_empty_suite_says_what_to_do(tmp_path):
    claim_suite(tmp_path / "empty", suite_of("smoke"))
    with pytest.raises(FedadeError, match=r"holds no finished cell; run `fedade bench smoke --out .*empty` first"):
        write_any_report(tmp_path / "empty")


def test_a_run_has_tables_too(run_folder, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["fedade", "report", "--table", "markdown", str(run_folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = capfd.readouterr().out
    assert "### digits: label shift, schedule lin" in told
    assert "| fed-ade |" in told
    assert "| NLL | ECE, % | Brier |" in told
    assert printed_tables(run_folder, "csv").startswith("table,row,")
    assert not (run_folder / "report.html").exists(), "tables instead of the page"


def test_several_folders_get_a_page_each(run_folder, suite_folder, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["fedade", "report", str(run_folder), str(suite_folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = capfd.readouterr().out.splitlines()
    assert told == [f"report: {run_folder / 'report.html'}", f"report: {suite_folder / 'report.html'}"]


def test_the_same_folder_gives_the_same_page(run_folder):
    first = write_report(run_folder).read_bytes()
    assert write_report(run_folder).read_bytes() == first
