from collections import Counter

import pytest

from fedade.reporting import names, paper
from fedade.reporting.paper import PaperPlace

COUNTS = {"table1": 200, "table2": 56, "table3": 16, "table4": 8, "table-gaussian": 160, "table-exponential": 160}


@pytest.mark.parametrize("table", paper.TABLES)
def test_a_table_is_whole(table: str) -> None:
    places = paper.accuracies(table)
    assert len(places) == COUNTS[table]
    cells = Counter(place[:-1] for place in places)
    assert len(set(cells.values())) == 1, "every scenario has the same rows"
    for place, number in places.items():
        assert 0 < number.mean < 100
        assert 0 < number.deviation < 10
        assert place.kind == ("covariate" if place.dataset.endswith("-c") else "label")
        assert place.schedule in names.SCHEDULES


@pytest.mark.parametrize(
    ("table", "place", "mean", "deviation"),
    [
        ("table1", PaperPlace("tiny-imagenet", "label", "uniform", "lin", "FTH"), 78.2, 1.0),
        ("table1", PaperPlace("cifar10", "label", "uniform", "squ", "FixLR(Low)"), 72.8, 2.1),
        ("table1", PaperPlace("cifar10", "label", "uniform", "squ", "Fed-ADE"), 72.2, 1.6),
        ("table1", PaperPlace("lama", "label", "uniform", "ber", "FixLR(High)"), 20.0, 4.7),
        ("table1", PaperPlace("cifar100-c", "covariate", "uniform", "sin", "FTH"), 7.6, 0.2),
        ("table1", PaperPlace("cifar100-c", "covariate", "uniform", "ber", "Fed-ADE"), 46.8, 0.1),
        ("table2", PaperPlace("cifar10", "label", "gaussian", "lin", "FedCCFA"), 62.3, 1.2),
        ("table2", PaperPlace("cifar10", "label", "exponential", "ber", "FTH"), 22.5, 2.2),
        ("table3", PaperPlace("cifar10", "label", "uniform", "lin", "KL divergence"), 63.2, 3.8),
        ("table3", PaperPlace("cifar10", "label", "uniform", "ber", "Bayesian CPD"), 69.0, 1.1),
        ("table4", PaperPlace("cifar10-c", "covariate", "uniform", "lin", "w/o S_rep"), 64.0, 0.3),
        ("table-gaussian", PaperPlace("cifar10-c", "covariate", "gaussian", "ber", "FixLR(Mid)"), 67.1, 1.0),
        ("table-exponential", PaperPlace("cifar10-c", "covariate", "exponential", "lin", "Fed-ADE"), 58.3, 0.5),
        ("table-exponential", PaperPlace("cifar100-c", "covariate", "exponential", "ber", "FedCCFA"), 16.9, 1.0),
    ],
)
def test_numbers_stand_where_the_paper_prints_them(
    table: str, place: PaperPlace, mean: float, deviation: float
) -> None:
    assert paper.accuracies(table)[place] == (mean, deviation)


def test_tables_have_the_rows_that_labels_are_mapped_to() -> None:
    rows = {table: {place.row for place in paper.accuracies(table)} for table in paper.TABLES}
    assert rows["table1"] == rows["table-gaussian"] == rows["table-exponential"] == set(names.METHODS.values())
    assert rows["table2"] == rows["table1"] - {"FixLR(Low)", "FixLR(Mid)", "FixLR(High)"}
    assert rows["table3"] == set(names.MEASURES.values())
    assert rows["table4"] == set(names.ESTIMATORS.values())


def test_tables_of_the_paper_that_repeat_a_number_agree() -> None:
    first = paper.accuracies("table1")
    for place, number in paper.accuracies("table3").items():
        if place.row == "Fed-ADE (Cosine similarity)":
            assert first[place._replace(row="Fed-ADE")] == number
    fourth = paper.accuracies("table4")
    for place, number in fourth.items():
        if place.row in ("Fed-ADE (full)", "Fixed LR"):
            row = "Fed-ADE" if place.row == "Fed-ADE (full)" else "FixLR(Mid)"
            assert first[place._replace(row=row)] == number


def test_a_suite_that_is_no_table_has_no_numbers() -> None:
    assert paper.accuracies("smoke") == {}


def test_wall_times_have_all_rows() -> None:
    times = paper.wall_times()
    assert tuple(times) == tuple(names.METHODS.values())
    assert times["FTH"] == (2631.2, 71.3)
    assert times["Fed-ADE"] == (109.5, 0.4)
