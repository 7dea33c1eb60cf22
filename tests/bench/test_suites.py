"""Suites are data: every cell once, every number of the paper covered, parts by label."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.experiments import cell as cells_module
from fedade.experiments.cell import COMMON
from fedade.experiments.identifying import changed_cell
from fedade.experiments.settings import build_method
from fedade.experiments.suites import SUITES, suite_of
from fedade.experiments.suites.grid import Block, Suite, SuiteRow, select
from fedade.methods import METHODS
from fedade.reporting import names, paper
from fedade.tuning.searches import is_tunable

ALL = {name: suite.cells(suite.seeds) for name, suite in SUITES.items()}


def test_every_table_of_the_paper_is_a_suite():
    assert set(paper.TABLES) < set(SUITES)
    assert [name for name, cells in ALL.items() if not cells] == ["fig-schedules"], "only that one trains nothing"
    with pytest.raises(FedadeError, match="there is no suite 'table9'; choose from smoke, "):
        suite_of("table9")


@pytest.mark.parametrize("name", SUITES)
def test_no_two_cells_of_a_suite_have_the_same_labels_or_compute_the_same(name):
    cells = ALL[name]
    for what in ([cell.address for cell in cells], [tuple(cell.labels.items()) for cell in cells]):
        assert len(set(what)) == len(what)
    for cell in cells:
        assert tuple(cell.labels)[: len(COMMON)] == COMMON
        assert cell.labels["suite"] == name
        assert cell.experiment.entry.method == cell.method == cell.labels["method"]
        assert cell.experiment.seeds == (cell.labels["seed"],)
        assert cell.experiment.scenario.schedule == cell.labels["schedule"]


@pytest.mark.parametrize("table", paper.TABLES)
def test_every_number_of_the_paper_has_a_cell_for_every_seed(table):
    covered = Counter(
        (*(cell.labels[field] for field in ("dataset", "kind", "source", "schedule")), row)
        for cell in ALL[table]
        if cell.labels.get("feature_measure", "paired") == "paired"
        for row in set(names.paper_rows(cell.labels))
    )
    wanted = [place for place in paper.accuracies(table) if place.dataset != "lama" or table == "table1"]
    assert len(wanted) >= 8
    assert {place: covered[tuple(place)] for place in wanted} == dict.fromkeys(wanted, len(SUITES[table].seeds))


def test_table1_has_every_method_and_row_on_every_benchmark():
    methods = {cell.method for cell in ALL["table1"]}
    assert len(methods) == 21
    assert methods <= set(METHODS)
    rows, benchmarks, schedules, seeds = 26, 6, 4, 3
    assert len(ALL["table1"]) == rows * benchmarks * schedules * seeds


def test_methods_of_others_in_the_field_have_their_rates_tuned_too():
    rows = {cell.labels["row"]: cell.method for cell in ALL["field"]}
    ours = {"fed-ade", "fed-ade-plus", "fed-ade-plus-federated"}
    free = {name for name in set(rows.values()) - ours if is_tunable(build_method(name, {}))}
    assert {method for row, method in rows.items() if row.endswith(" (tuned)")} == free


def changed(**changes):
    """A cell that differs from `BASE` in this."""
    said = {"preset": "digits-label", "method": "fed-ade", "seed": 0, "schedule": "lin", "settings": {}, "scenario": {}}
    said |= changes
    row = SuiteRow("row", said["method"], said["settings"])
    scenario = {"scenario": said["scenario"]}
    (cell,) = Suite("s", "", [Block((said["preset"],), (row,), (said["schedule"],), scenario)]).cells((said["seed"],))
    return cell


BASE = changed()


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "digits-covariate"},
        {"method": "fix-lr-mid"},
        {"seed": 1},
        {"schedule": "squ"},
        {"settings": {"use_unc": False}},
        {"settings": {"rate": {"high": 50}}},
        {"scenario": {"alpha": 0.5}},
    ],
)
def test_an_address_tells_every_setting_apart(changes):
    cell = changed(**changes)
    assert cell.address != BASE.address
    assert (cell.batch == BASE.batch) == (set(changes) <= {"seed", "schedule"}), "what a GPU may run together"


def test_an_address_ignores_labels_where_data_lie_what_computes_and_other_methods(tmp_path):
    elsewhere = changed_cell(
        BASE.computed_on("cuda:1", tmp_path), ["execution.precision=bf16", "tent.adaptation_steps=9"]
    )
    assert elsewhere.address == BASE.address
    assert elsewhere.experiment.scenario.data_dir == tmp_path.resolve()
    assert elsewhere.experiment.execution.device == "cuda:1"
    assert changed_cell(BASE, ["fed-ade.use_unc=false"]).address == changed(settings={"use_unc": False}).address
    assert changed_cell(changed(settings={"use_unc": False}), ["fed-ade.use_unc=true"]).address == BASE.address
    assert changed(settings={"use_unc": True}).address == BASE.address, "a default, said or not"
    block = Block(("digits-label",), (SuiteRow("name", "fed-ade"),), ("lin",), varied={"alpha": 1.0})
    (other,) = Suite("other", "", [block]).cells((0,))
    assert other.address == BASE.address


def test_an_address_changes_with_the_schema_of_what_is_stored(monkeypatch):
    monkeypatch.setattr(cells_module, "SCHEMA", cells_module.SCHEMA + 1)
    assert changed().address != BASE.address


CELLS = [*ALL["smoke"], *ALL["fig-lr"][:400]]
PAIRS = sorted({(key, value) for cell in CELLS for key, value in cell.labels.items()}, key=str)


@given(st.lists(st.sampled_from(PAIRS), max_size=5), st.booleans())
def test_values_of_one_key_are_alternatives_and_keys_narrow_down(pairs, in_lists):
    wanted: dict[str, list[object]] = {}
    for key, value in pairs:
        wanted.setdefault(key, []).append(value)
    if in_lists:
        filters = [f"{key}={','.join(map(str, values))}" for key, values in wanted.items()]
    else:
        filters = [f"{key}={value}" for key, value in pairs]
    expected = [cell for cell in CELLS if all(cell.labels.get(key) in values for key, values in wanted.items())]
    if expected:
        assert select(CELLS, filters) == expected
    else:
        with pytest.raises(FedadeError, match="no cell has"):
            select(CELLS, filters)


def test_numbers_are_compared_as_numbers():
    chosen = select(ALL["fig-lr"], ["low=0.000005", "high=1e-4", "seed=1"])
    assert {(cell.labels["low"], cell.labels["high"], cell.seed) for cell in chosen} == {(5e-6, 1e-4, 1)}


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        (["colour=red"], "--only colour: cells have no such label; choose from suite, dataset, kind"),
        (["dataset=cifar11"], "--only dataset=cifar11: no cell has it; choose from digits"),
        (["seed=x"], "--only seed=x: no cell has it; choose from 0, 1"),
        (["schedule=lin,ber"], "--only schedule=ber: no cell has it; choose from lin, squ"),
        (["dataset"], "--only dataset: expected key=value"),
        (["dataset="], "--only dataset=: expected key=value"),
        (["=digits"], "--only =digits: expected key=value"),
    ],
)
def test_a_wrong_filter_is_told_what_there_is(filters, told):
    with pytest.raises(FedadeError) as error:
        select(ALL["smoke"], filters)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_filters_that_exclude_each_other_are_refused():
    with pytest.raises(FedadeError, match="no cell has dataset=cifar10-c and kind=label"):
        select(ALL["table1"], ["dataset=cifar10-c", "kind=label"])
    with pytest.raises(FedadeError, match="no such label; choose from none: no cells"):
        select(ALL["fig-schedules"], ["schedule=lin"])


def test_the_guide_tells_every_suite_and_how_many_cells_it_has():
    guide = (Path(__file__).resolve().parents[2] / "docs" / "bench.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in guide.splitlines() if line.startswith("| `")]
    told = {line[0].strip("`"): line[-1].replace(",", "") for line in lines if len(line) == 5}
    assert told == {name: str(len(cells)) for name, cells in ALL.items()}
