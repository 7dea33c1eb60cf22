"""The text benchmark in table 1."""

from collections import Counter

from fedade.experiments.suites import SUITES
from fedade.experiments.suites.grid import select
from fedade.reporting import names, paper

LAMA = select(SUITES["table1"].cells((0, 1, 2)), ["dataset=lama"])


def test_every_number_of_the_papers_text_benchmark_has_a_cell_for_every_seed():
    covered = Counter((cell.labels["schedule"], row) for cell in LAMA for row in names.paper_rows(cell.labels))
    wanted = [place for place in paper.accuracies("table1") if place.dataset == "lama"]
    assert len(wanted) == 40
    assert {covered[place.schedule, place.row] for place in wanted} == {3}
    assert len(LAMA) == 26 * 4 * 3
    assert {cell.experiment.scenario.dataset for cell in LAMA} == {"lama-trex"}


def test_rates_are_the_papers_where_the_row_says_so_and_are_found_elsewhere():
    def configured(row):
        (cell,) = select(LAMA, [f"row={row}", "schedule=lin", "seed=0"])
        return cell.configured

    printed = configured("Fed-ADE (as printed)")
    assert (printed.constants, printed.rate.low, printed.rate.high) == ("set", 1e-3, 1e-2)
    for row in ("Fed-ADE", "FixLR(Low)", "FixLR(Mid)", "FixLR(High)"):
        assert configured(row).constants == "calibrated"
        assert "rate" not in configured(row).model_fields_set
