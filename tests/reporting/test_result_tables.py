"""Files of results: what is kept when cells are added, and tables that are made of lines."""

import random

import pytest

from fedade.core.errors import FedadeError
from fedade.reporting.result_lines import as_csv, merged, read_lines, write_lines
from fedade.reporting.result_tables import TableSpec, markdown


def line(row="Fed-ADE", seed=0, accuracy=0.5, **more):
    labels = {"suite": "s", "dataset": "cifar10", "kind": "label", "schedule": "lin", "source": "uniform"}
    own = {"row": row, "method": row.lower(), "seed": str(seed), "accuracy_post": str(accuracy), "oracle": "False"}
    return labels | own | {name: str(value) for name, value in more.items()}


def table(lines, **spec):
    return markdown(TableSpec.model_validate({"file": "s.csv", **spec}), lines).splitlines()


def test_adding_keeps_other_cells_and_the_latest_of_two_in_one_order(tmp_path):
    known = [line(seed=seed, schedule=when) for seed in (10, 9) for when in ("squ", "lin")] + [line("ATLAS", low="0.1")]
    later = line(seed=9, accuracy=0.75, started="2026-02-01", commit="b", cell="y")
    both = merged(known, [later])
    assert both == merged(both, [later]) == merged([later], random.sample(known, len(known)))
    assert len(both) == len(known)
    assert [(one["row"], one["schedule"], one["seed"]) for one in both] == [
        ("ATLAS", "lin", "0"), *(("Fed-ADE", when, seed) for when in ("lin", "squ") for seed in ("9", "10"))
    ]  # fmt: skip
    earlier = {**later, "accuracy_post": "0.1", "started": "2026-01-01", "commit": "a", "cell": "x"}
    assert merged(both, [earlier]) == both
    write_lines(tmp_path / "s.csv", both)
    assert as_csv(merged(read_lines(tmp_path / "s.csv"), [])) == (tmp_path / "s.csv").read_text()


def test_two_settings_under_the_same_labels_are_refused():
    with pytest.raises(FedadeError, match="cells x and y of one commit have the same labels"):
        merged([line(commit="a", cell="x")], [line(commit="a", cell="y")])
    for older in (line(commit="a", cell="x"), line(commit="b+changes", cell="x"), line(commit="b")):
        newer = {**older, "commit": "b" + older["commit"][1:], "cell": "y", "started": "2026"}
        assert merged([older], [newer]) == [newer]


def test_a_mean_over_seeds_goes_when_each_has_its_own_line():
    mean, *single = line(seed="0 1"), line(seed=0), line(seed=1)
    assert merged([mean], single[:1]) == [single[0], mean]
    assert merged([mean], single) == single


def test_an_accuracy_table_has_means_deviations_the_best_and_the_share_of_the_oracles_gain():
    lines = [
        *(line("source", seed, 0.5 + seed / 100) for seed in (0, 1)),
        *(line("Fed-ADE", seed, 0.6 + seed / 100) for seed in (0, 1)),
        *(line("oracle-prior", seed, 0.7 + seed / 100, oracle=True) for seed in (0, 1)),
        line("UDA", 0, 0.69),
        line("FTH", "0 1", 0.545, deviation=0.02),
    ]
    assert table(lines, rows=["source", "Fed-ADE", "UDA", "FTH", "oracle-prior"], deviation=True, share=True) == [
        "| method | Lin. | share of the oracle's gain, % |",
        "| --- | ---: | ---: |",
        "| source | 50.50 ±0.71 | 0 |",
        "| Fed-ADE | **60.50 ±0.71** | 50 |",
        "| UDA (seed 0) | 69.00 | 95 |",
        "| FTH | 54.50 ±2.00 | 20 |",
        "| *oracle-prior (oracle)* | 70.50 ±0.71 | 100 |",
    ]
    assert table(lines, rows=["Fed-ADE"], value="share")[2] == "| Fed-ADE | 50 |"


def test_columns_may_be_a_number_and_means_go_over_named_labels_only():
    sizes = [line(accuracy=size / 10000, reference_size=size) for size in (1000, 100)]
    assert table(sizes, column="reference_size")[0] == r"| method | reference\_size=100 | reference\_size=1000 |"
    with pytest.raises(FedadeError, match="mixes reference_size 1000 and 100; choose one in `where`, or name"):
        table(sizes)
    assert table(sizes, over="reference_size")[2] == "| Fed-ADE | 5.50 |"
    assert table(sizes, where={"reference_size": 100})[2] == "| Fed-ADE | 1.00 |"
    part = [*sizes, line("UDA", accuracy=0.2, reference_size=100)]
    assert table(part, over="reference_size")[3] == "| UDA | 20.00 (1 of 2 cells) |"


def test_ranks_are_over_scenarios_among_rows_that_have_all():
    lines = [line("A", 0, 0.5), line("B", 0, 0.4), line("B", 1, 0.7), line("C", 0, 0.9)]
    lines += [line(row, 0, 0.6 + place / 10, schedule="squ") for place, row in enumerate("AB")]
    head, _, *rows = table(lines, rank=True, over="schedule", column="kind")
    assert head.endswith("| average rank |")
    assert [row.split(" | ")[-1] for row in rows] == ["2.00 |", "**1.00** |", "– |"]


def test_the_papers_numbers_stand_beside_ours():
    shown = table([line(accuracy=0.75)], paper="table1")
    assert shown[2] == r"| Fed-ADE | 75.00 \| 73.8 ±0.6 \| +1.2 |"


def test_two_rows_are_compared_over_equal_seeds():
    lines = [line(row, seed, 0.5 + gain * (1 + seed % 2)) for row, gain in (("A", 0.01), ("B", 0)) for seed in range(5)]
    lines += [line("A", 7, 0.9), line("B", "8 9", 0.1), line("A", 8, 0.1)]
    assert table(lines, table="paired", between=["A", "B"]) == [
        "| schedule | A | B | difference | p (t-test) | pairs |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        r"| Lin. | 51.40 | 50.00 | +1.40 \[+0.72, +2.08\] | 0.005 | 5 |",
        r"| all | 51.40 | 50.00 | +1.40 \[+0.72, +2.08\] | 0.005 | 5 |",
    ]


def test_ranks_are_made_from_lines():
    lines = [line(row, seed, accuracy) for row, accuracy in (("Fed-ADE", 0.6), ("UDA", 0.5)) for seed in (0, 1)]
    head, _, first, second, *notes = table(lines, table="compared")
    assert head.startswith("| method | average rank |")
    assert first.startswith("| Fed-ADE | **1.00** |")
    assert second.startswith("| UDA | 2.00 |")
    assert "over 2 of 2 cells" in notes[1]


def test_texts_are_shown_as_they_are_each_once():
    lines = [
        {"speed": "fast", "who": who, "measure": measure, "value": value}
        for who, values in (("a", "12"), ("b", "34"))
        for measure, value in zip(("left", "right"), values, strict=True)
    ]
    spec = {"table": "text", "row": ["speed", "who"], "column": "measure"}
    assert table(lines, **spec, columns=["left"], text="{left:.1f}")[2:] == ["| fast | a | 1.0 |", "|  | b | 3.0 |"]
    with pytest.raises(FedadeError, match="two lines for fast, left, left"):
        table(lines, table="text", row="speed", column="measure", text="{left}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"where": {"kind": "none"}}, "no line has"),
        ({"rows": ["Fed-ADR"]}, "no line has 'Fed-ADR'; choose from Fed-ADE"),
        ({"table": "paired", "between": ["Fed-ADE", "x"]}, "no line has 'x'"),
    ],
)
def test_what_is_not_there_is_named(spec, message):
    with pytest.raises(FedadeError, match=message):
        table([line()], **spec)
