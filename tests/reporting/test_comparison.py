import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.reporting.comparison import ComparedRow, OracleShare, average_ranks, compare, oracle_share, paired
from fedade.reporting.grid import grid
from fedade.reporting.outcomes import Outcome

from ..maths.samples import QUICK
from .builders import failed, finished, planned

ROWS = "ABCD"
percent = st.integers(0, 100).map(float)
cells = st.lists(st.fixed_dictionaries(dict.fromkeys(ROWS, percent)), min_size=1, max_size=6)


def contenders(outcomes: list[Outcome]) -> dict[str, ComparedRow]:
    return {str(dict(one.row)["row"]): one for one in compare(grid(outcomes)).contenders}


@QUICK
@given(cells)
def test_ranks_count_who_is_better_and_share_ties(scores: list[dict[str, float]]) -> None:
    found = average_ranks(scores)
    for row in ROWS:
        by_hand = [
            1
            + sum(cell[other] > cell[row] for other in ROWS)
            + (sum(cell[other] == cell[row] for other in ROWS) - 1) / 2
            for cell in scores
        ]
        assert found[row] == pytest.approx(np.mean(by_hand))
    assert sum(found.values()) == pytest.approx(len(ROWS) * (len(ROWS) + 1) / 2)


@QUICK
@given(cells)
def test_ranks_do_not_depend_on_the_scale(scores: list[dict[str, float]]) -> None:
    stretched = [{row: 3 * value + 1 for row, value in cell.items()} for cell in scores]
    assert average_ranks(stretched) == average_ranks(scores)


def test_no_cells_no_ranks() -> None:
    assert average_ranks([]) == {}


def test_oracles_are_never_ranked_and_never_tested() -> None:
    outcomes = [
        finished(row, value + seed * step, seed, oracle=row.startswith("oracle"))
        for row, value, step in (("Fed-ADE", 70, 1), ("UDA", 60, 2), ("oracle-prior", 90, 3))
        for seed in range(5)
    ]
    found = contenders(outcomes)
    assert (found["Fed-ADE"].rank, found["UDA"].rank, found["oracle-prior"].rank) == (1, 2, None)
    assert found["oracle-prior"].paired.t_test is None
    assert found["oracle-prior"].paired.difference == pytest.approx(24)
    assert found["UDA"].paired.t_test is not None


def test_only_cells_that_all_ranked_methods_finished_are_ranked() -> None:
    outcomes = [
        finished("Fed-ADE", 70, 0),
        finished("Fed-ADE", 50, 1),
        finished("Fed-ADE", 50, 2),
        finished("UDA", 60, 0),
        failed("UDA", "diverged", 1),
        planned("UDA", 2),
        # A row that finished nothing does not keep the others from being ranked.
        failed("FTH", "diverged", 0),
    ]
    compared = compare(grid(outcomes))
    assert (compared.cells, compared.ranked_cells) == (3, 1)
    found = contenders(outcomes)
    assert found["Fed-ADE"].rank == 1
    assert found["FTH"].rank is None
    assert found["FTH"].accuracy_post is None


@QUICK
@given(st.lists(st.tuples(percent, percent, percent), min_size=1, max_size=5))
def test_share_is_0_for_the_source_and_1_for_the_oracle(scenarios: list[tuple[float, float, float]]) -> None:
    found = oracle_share(scenarios)
    gaining = [(accuracy, source, oracle) for accuracy, source, oracle in scenarios if oracle > source]
    assert found.scenarios == len(gaining)
    if not gaining:
        assert found.share is None
        return
    assert oracle_share([(source, source, oracle) for _, source, oracle in scenarios]).share == 0
    assert oracle_share([(oracle, source, oracle) for _, source, oracle in scenarios]).share == 1
    gained = sum(accuracy - source for accuracy, source, _ in gaining)
    assert found.share == pytest.approx(gained / sum(oracle - source for _, source, oracle in gaining))


def test_an_oracle_that_gains_nothing_gives_no_share() -> None:
    assert oracle_share([(80.0, 70.0, 70.09)]) == OracleShare(None, 0)
    assert oracle_share([(80.0, 70.0, 70.09), (71.0, 70.0, 72.0)]) == OracleShare(0.5, 1)


def test_share_in_a_comparison_uses_the_seeds_that_all_three_finished() -> None:
    outcomes = [
        finished("source", 50, 0),
        finished("source", 50, 1),
        finished("oracle-prior", 60, 0, oracle=True),
        finished("oracle-prior", 60, 1, oracle=True),
        finished("Fed-ADE", 55, 0),
        failed("Fed-ADE", "diverged", 1),
    ]
    assert contenders(outcomes)["Fed-ADE"].share == (pytest.approx(0.5), 1)
    assert contenders(outcomes[:2] + outcomes[4:])["Fed-ADE"].share == (None, 0)


def test_pairs_have_the_same_scenario_and_seed() -> None:
    outcomes = [
        finished("Fed-ADE", 70, 0, schedule="lin"),
        finished("Fed-ADE", 60, 0, schedule="squ"),
        finished("UDA", 69, 0, schedule="lin"),
        finished("UDA", 58, 0, schedule="squ"),
        finished("UDA", 10, 0, schedule="ber"),
    ]
    pair = contenders(outcomes)["UDA"].paired
    assert pair.pairs == 2
    assert pair.difference == pytest.approx(-1.5)


def test_holm_counts_the_baselines_alone() -> None:
    values = {
        "Fed-ADE": (70, 71, 72, 73, 74),
        "UDA": (60, 62, 61, 62, 64),
        "FTH": (65, 64, 68, 70, 66),
        "oracle-prior": (90, 92, 91, 93, 94),
    }
    outcomes = [
        finished(row, value, seed, oracle=row == "oracle-prior")
        for row, found in values.items()
        for seed, value in enumerate(found)
    ]
    found = contenders(outcomes)
    alone = {row: paired(values[row], values["Fed-ADE"]).t_test for row in ("UDA", "FTH")}
    smaller, larger = sorted(alone, key=alone.get)
    assert found[smaller].paired.t_test == pytest.approx(2 * alone[smaller])
    assert found[larger].paired.t_test == pytest.approx(max(alone[larger], 2 * alone[smaller]))


def test_costs_are_means() -> None:
    found = contenders([finished("Fed-ADE", 70, 0), finished("Fed-ADE", 72, 3)])["Fed-ADE"]
    assert found.seconds == 11.5
    assert found.megabytes == 2.5
    assert (found.accuracy_post, found.accuracy_pre) == (pytest.approx(71), pytest.approx(70))
    assert found.paired is None


def test_the_reference_has_the_bounds_of_the_paper() -> None:
    outcomes = [
        finished("Fed-ADE", 60 + seed, seed, low=low, high=1e-4) for low in (1e-6, 5e-6, 1e-5) for seed in (0, 1)
    ]
    by_low = {dict(one.row)["low"]: one.paired for one in compare(grid(outcomes)).contenders}
    assert by_low[5e-6] is None
    assert by_low[1e-6].pairs == by_low[1e-5].pairs == 2


def test_deviation_is_that_of_a_sample_and_one_seed_has_none() -> None:
    several = grid([finished("Fed-ADE", value, seed) for seed, value in enumerate((70, 72, 77))])
    entry = several.entry(several.scenarios[0], several.rows[0])
    assert entry.mean == pytest.approx(73)
    assert entry.deviation == pytest.approx(np.sqrt(13))
    single = grid([finished("Fed-ADE", 70)])
    assert single.entry(single.scenarios[0], single.rows[0]).deviation is None


def test_the_same_cell_twice_is_refused() -> None:
    with pytest.raises(FedadeError, match="two outcomes for"):
        grid([finished("Fed-ADE", 70), finished("Fed-ADE", 71)])
