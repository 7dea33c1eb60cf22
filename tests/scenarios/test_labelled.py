import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.scenarios.labelled import client_rows

LABELS = np.repeat(np.arange(5), 40)


@given(clients=st.integers(1, 30), size=st.integers(5, 60), seed=st.integers(0, 1000))
def test_every_client_has_its_own_balanced_draw(clients, size, seed):
    drawn = client_rows(LABELS, 5, clients, size, Seeds(seed))
    assert drawn.rows.shape == (clients, size)
    for rows in drawn.rows:
        assert len(set(rows.tolist())) == size, "no example twice at one client"
        counts = np.bincount(LABELS[rows], minlength=5)
        assert counts.max() - counts.min() <= 1
    everybody = drawn.rows.flatten().tolist()
    assert not drawn.disjoint or len(set(everybody)) == len(everybody)


def test_examples_are_dealt_out_where_there_are_enough():
    assert client_rows(LABELS, 5, 8, 25, Seeds(0)).disjoint  # 8 x 25 = 200
    assert not client_rows(LABELS, 5, 9, 25, Seeds(0)).disjoint


def test_other_seeds_give_other_draws_and_the_same_seed_the_same():
    first, again, other = (client_rows(LABELS, 5, 4, 20, Seeds(seed)).rows for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("size", "told"), [(4, "one of each of 5 classes"), (205, "41 of class 0, and 40 are held out; set it to 200")]
)
def test_what_cannot_be_drawn_is_told(size, told):
    with pytest.raises(FedadeError, match=told):
        client_rows(LABELS, 5, 2, size, Seeds(0))


def test_labelled_rows_never_meet_the_stream(scenario_factory):
    scenario = scenario_factory(num_timesteps=2, reference_size=30)
    streamed = scenario.streams.draw(np.arange(8), 1).inputs.flatten(0, 1).flatten(1)
    pool, rows, _ = scenario.references
    labelled = pool.inputs[rows.flatten()].flatten(1)
    assert not (streamed[:, None] == labelled[None]).all(-1).any()
