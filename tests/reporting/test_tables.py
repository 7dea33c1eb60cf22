from dataclasses import replace
from pathlib import Path

import pytest

from fedade.core.errors import FedadeError
from fedade.reporting.grid import grid
from fedade.reporting.outcomes import Outcome
from fedade.reporting.rendering import Table, TableCell, parts
from fedade.reporting.tables import printed, suite_tables, write_tables

from .builders import failed, finished, planned


def cell(table: Table, row: str, column: str) -> TableCell:
    (cells,) = [one.cells for one in table.rows if one.name == row]
    return cells[[one.name for one in table.columns].index(column)]


def shown(table: Table, row: str, column: str) -> tuple[str, ...]:
    heading = table.columns[[one.name for one in table.columns].index(column)]
    return parts(cell(table, row, column), heading)


def table1() -> list[Outcome]:
    """Three methods, two benchmarks, two schedules, two seeds."""
    return [
        finished(row, value + seed, seed, oracle=row == "oracle-prior", dataset=dataset, kind=kind, schedule=schedule)
        for dataset, kind in (("cifar10", "label"), ("cifar10-c", "covariate"))
        for schedule in ("lin", "squ")
        for seed in (0, 1)
        for row, value in (("UDA", 60), ("Fed-ADE", 72), ("source", 50), ("oracle-prior", 80))
    ]


def test_tables_of_a_suite_are_named_after_the_paper() -> None:
    tables = suite_tables("table1", table1())
    assert [table.title for table in tables] == [
        "table1, CIFAR-10, label shift, uniform source",
        "table1, CIFAR-10, label shift, uniform source: comparison",
        "table1, CIFAR-10-C, covariate shift, uniform source",
        "table1, CIFAR-10-C, covariate shift, uniform source: comparison",
        "table1: comparison over all benchmarks",
    ]
    assert [column.name for column in tables[0].columns] == ["Lin.", "Squ."]
    assert [row.title for row in tables[0].rows] == ["UDA", "Fed-ADE", "source", "oracle-prior (oracle)"]


def test_ours_stands_beside_the_paper() -> None:
    label, _, covariate, *_ = suite_tables("table1", table1())
    assert shown(label, "Fed-ADE", "Lin.") == ("72.50 ±0.71", "73.8 ±0.6", "-1.3")
    assert shown(covariate, "UDA", "Squ.") == ("60.50 ±0.71", "43.3 ±0.2", "+17.2")
    assert shown(label, "source", "Lin.") == ("50.50 ±0.71",)


def test_another_shift_on_the_same_data_is_not_what_the_paper_measured() -> None:
    outcomes = [finished("Fed-ADE", 70, kind="both"), finished("Fed-ADE", 70, dataset="digits")]
    both, _, digits, *_ = suite_tables("table1", outcomes)
    assert shown(both, "Fed-ADE", "Lin.") == shown(digits, "Fed-ADE", "Lin.") == ("70.00",)


def test_a_suite_that_is_no_table_of_the_paper_shows_ours_alone() -> None:
    table = suite_tables("smoke", [finished("Fed-ADE", 70)])[0]
    assert shown(table, "Fed-ADE", "Lin.") == ("70.00",)


def test_the_best_ranked_method_is_marked_and_no_oracle() -> None:
    table = suite_tables("table1", table1())[0]
    assert [row.name for row in table.rows if row.cells[0].best] == ["Fed-ADE"]


def test_equal_means_as_printed_are_all_marked() -> None:
    outcomes = [finished("Fed-ADE", 70.001), finished("UDA", 70.002), finished("FTH", 69.9)]
    table = suite_tables("table1", outcomes)[0]
    assert [row.name for row in table.rows if row.cells[0].best] == ["Fed-ADE", "UDA"]


def test_what_is_missing_or_failed_is_said_and_never_a_number() -> None:
    outcomes = [
        finished("Fed-ADE", 70, 0),
        finished("Fed-ADE", 71, 1),
        finished("Fed-ADE", 70, 0, schedule="squ"),
        finished("Fed-ADE", 71, 1, schedule="squ"),
        finished("UDA", 90, 0),
        failed("UDA", "predictions of client 3 are not finite", 1),
        planned("UDA", 0, schedule="squ"),
        failed("FTH", "predictions of client 3 are not finite", 0),
        planned("FTH", 1),
    ]
    table, comparison = suite_tables("table1", outcomes)
    assert shown(table, "UDA", "Lin.")[0] == "90.00 (1 of 2 seeds)"
    assert shown(table, "UDA", "Squ.") == ("missing", "28.1 ±1.4", "–")
    assert shown(table, "FTH", "Lin.") == ("failed", "31.4 ±0.8", "–")
    assert shown(table, "FTH", "Squ.") == ("missing", "31.7 ±0.7", "–")
    assert not cell(table, "UDA", "Lin.").best, "a mean over fewer seeds is not the best"
    assert cell(table, "Fed-ADE", "Lin.").best
    assert table.notes[-2:] == (
        "Failed: UDA, cells: 1, reason: predictions of client 3 are not finite",
        "Failed: FTH, cells: 1, reason: predictions of client 3 are not finite",
    )
    assert shown(comparison, "FTH", "after") == ("0 of 4 cells",)
    assert shown(comparison, "FTH", "seconds")[0] == "–"
    assert shown(comparison, "UDA", "after") == ("90.00 (1 of 4 cells)",)
    assert shown(comparison, "UDA", "p (t-test)") == ("too few pairs",)
    assert shown(comparison, "UDA", "to Fed-ADE") == ("+20.00",)
    assert comparison.notes[0].startswith("Average rank over 1 of 4 cells")
    assert comparison.notes[2].endswith("p: needs 5 pairs.")


def test_the_comparison_of_all_benchmarks() -> None:
    outcomes = [
        finished(row, value + seed * step, seed, oracle=row == "oracle-prior", schedule=schedule)
        for schedule in ("lin", "squ", "sin")
        for seed in (0, 1)
        for row, value, step in (("UDA", 60, 0), ("Fed-ADE", 70, 1), ("source", 50, 0), ("oracle-prior", 90, 0))
    ]
    table = suite_tables("table1", outcomes)[-1]
    assert shown(table, "Fed-ADE", "average rank") == ("1.00",)
    assert cell(table, "Fed-ADE", "average rank").best
    assert shown(table, "oracle-prior", "average rank") == ("–",)
    assert shown(table, "UDA", "oracle share, %") == ("25",)
    assert shown(table, "UDA", "to Fed-ADE") == ("-10.50 [-11.07, -9.93]",)
    assert shown(table, "UDA", "pairs") == ("6",)
    assert shown(table, "UDA", "p (t-test)") == ("<0.001",)
    assert "Holm's correction over 2 baselines" in table.notes[2]
    assert shown(table, "UDA", "MB sent") == ("2.5",)
    assert shown(table, "UDA", "seconds") == ("10.5", "1242.7 ±7.8", "-1232.2")
    assert shown(table, "Fed-ADE", "to Fed-ADE") == ("–",)


def test_wall_times_of_the_paper_stand_beside_the_whole_table_only() -> None:
    tables = suite_tables("table1", table1())
    assert cell(tables[1], "Fed-ADE", "seconds").paper is None
    assert cell(tables[-1], "Fed-ADE", "seconds").paper == (109.5, 0.4)


def test_table_2_is_split_by_the_source_distribution() -> None:
    outcomes = [finished("Fed-ADE", 68, suite="table2", source=source) for source in ("gaussian", "exponential")]
    gaussian, _, exponential, *_ = suite_tables("table2", outcomes)
    assert "Gaussian source" in gaussian.title
    assert shown(gaussian, "Fed-ADE", "Lin.")[1] == "69.2 ±1.7"
    assert shown(exponential, "Fed-ADE", "Lin.")[1] == "67.4 ±1.6"


def test_table_3_compares_both_readings_of_a_measure_with_the_paper() -> None:
    outcomes = [
        finished("Fed-ADE (Cosine similarity)", 73, measure="cosine", feature_measure="paired"),
        finished("KL divergence", 72, measure="kl", feature_measure="paired"),
        finished("KL divergence (predictions only)", 71, measure="kl", feature_measure="cosine"),
        finished("hellinger", 71, measure="hellinger", feature_measure="paired"),
    ]
    table, comparison = suite_tables("table3", outcomes)
    assert shown(table, "KL divergence", "Lin.")[1] == shown(table, "KL divergence (predictions only)", "Lin.")[1]
    assert shown(table, "KL divergence", "Lin.")[1] == "63.2 ±3.8"
    assert cell(table, "hellinger", "Lin.").paper is None
    assert shown(comparison, "KL divergence", "to Fed-ADE") == ("-1.00",)


def test_table_4_has_the_shifts_as_columns() -> None:
    rows = ("Fed-ADE (full)", "w/o S_unc", "w/o S_rep", "Fixed LR")
    outcomes = [
        finished(row, 70, suite="table4", dataset=dataset, kind=kind)
        for dataset, kind in (("cifar10", "label"), ("cifar10-c", "covariate"))
        for row in rows
    ]
    table, comparison = suite_tables("table4", outcomes)
    assert [column.name for column in table.columns] == ["label shift", "covariate shift"]
    published = [[shown(table, row, column.name)[1] for column in table.columns] for row in rows]
    assert published[1] == ["71.3 ±0.3", "64.2 ±0.1"]
    assert published[3] == ["70.8 ±2.1", "63.9 ±0.3"]
    assert comparison.title == "table4: comparison"


def test_what_a_suite_varies_tells_rows_and_tables_apart() -> None:
    rates = [finished("Fed-ADE", 70, suite="fig-lr", low=low, high=1e-4) for low in (1e-6, 5e-6)]
    table = suite_tables("fig-lr", rates)[0]
    assert [row.name for row in table.rows] == ["Fed-ADE, η_min=1e-06", "Fed-ADE, η_min=5e-06"]
    alphas = [
        finished("Fed-ADE", 70, suite="fig-dirichlet", alpha=alpha, schedule=schedule)
        for alpha in (0.1, 100.0)
        for schedule in ("lin", "squ")
    ]
    tables = suite_tables("fig-dirichlet", alphas)
    assert [table.title.split(", ")[-1] for table in tables[::2]] == [
        "α=0.1",
        "α=100",
        "fig-dirichlet: comparison over all benchmarks",
    ]
    assert [[column.name for column in table.columns] for table in tables[:3:2]] == [["Lin.", "Squ."]] * 2


def test_registered_names_become_the_rows_of_the_paper() -> None:
    table = suite_tables("table1", [finished("fed-ccfa", 66)])[0]
    assert shown(table, "FedCCFA", "Lin.") == ("66.00", "65.8 ±0.5", "+0.2")


@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "csv"])
def test_all_formats_are_printed_and_written_alike(fmt: str, tmp_path: Path) -> None:
    text = printed("table1", table1(), fmt)
    paths = write_tables("table1", table1(), tmp_path)
    assert [path.name for path in paths] == ["tables.txt", "tables.md", "tables.tex", "tables.csv"]
    assert text in [path.read_text() for path in paths]
    assert "Fed-ADE" in text


def test_a_suite_without_cells_has_no_tables(tmp_path: Path) -> None:
    assert write_tables("fig-schedules", [], tmp_path) == []
    assert not list(tmp_path.iterdir())
    with pytest.raises(FedadeError, match="fig-schedules has no cells to tabulate"):
        printed("fig-schedules", [], "text")


def test_a_label_that_a_suite_introduces_names_a_row_if_it_says_so():
    halves = [replace(finished("A", 50.0, memory=memory), row_labels=("memory",)) for memory in (0, 5)]
    accuracies, _ = suite_tables("mine", halves)
    assert [row.name for row in accuracies.rows] == ["A, memory=0", "A, memory=5"]
    assert len(suite_tables("mine", [replace(one, row_labels=()) for one in halves])) == 5, "two scenarios"


def test_a_label_names_the_same_in_all_cells():
    mixed = [replace(finished("A", 50.0, seed, memory=0), row_labels=("memory",) * seed) for seed in (0, 1)]
    with pytest.raises(FedadeError, match="'memory' names a row in one cell and a scenario in another"):
        grid(mixed)
    with pytest.raises(FedadeError, match="'schedule' of a cell has a place of its own"):
        grid([replace(finished("A", 50.0), row_labels=("schedule",))])
