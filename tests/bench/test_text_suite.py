"""The text benchmark in table 1."""

from collections import Counter

import pytest

from fedade.experiments.suites import SUITES
from fedade.experiments.suites.selecting import select
from fedade.reporting import names, paper

LAMA = select(SUITES["table1"].cells((0, 1, 2)), ["dataset=lama"])


def test_every_number_of_the_papers_text_benchmark_has_a_cell_for_every_seed():
    covered = Counter((cell.labels["schedule"], row) for cell in LAMA for row in names.paper_rows(cell.labels))
    wanted = [place for place in paper.accuracies("table1") if place.dataset == "lama"]
    assert len(wanted) == 40
    assert {covered[place.schedule, place.row] for place in wanted} == {3}
    assert len(LAMA) == 21 * 4 * 3
    assert {cell.experiment.scenario.dataset for cell in LAMA} == {"lama-trex"}


@pytest.mark.parametrize(
    ("row", "low", "mid", "high"),
    [("FixLR(Low)", 1e-4, None, None), ("FixLR(Mid)", None, 1e-3, None), ("FixLR(High)", None, None, 1e-2),
     ("Fed-ADE", 1e-3, None, 1e-2)],
)  # fmt: skip
def test_rates_are_the_papers_for_text(row, low, mid, high):
    (cell,) = select(LAMA, [f"row={row}", "schedule=lin", "seed=0"])
    rate = cell.configured.rate
    for wanted, found in ((low, rate.low), (mid, rate.mid), (high, rate.high)):
        assert wanted in (None, found)
