import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.scenarios.partition import client_rows

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
    ("labels", "size", "told"),
    [
        (LABELS, 4, "one of each of 5 classes; set it to 5 or more, or set scenario.reference to common$"),
        (LABELS, 201, "201 examples are asked for and 200 are held out; set it to 200 or less"),
        (LABELS[LABELS != 2], 20, "class 2 has no held-out example"),
    ],
)
def test_what_cannot_be_drawn_is_told(labels, size, told):
    with pytest.raises(FedadeError, match=told):
        client_rows(labels, 5, 2, size, Seeds(0))


def test_a_scarce_class_gives_all_it_has_and_others_fill_up():
    labels = np.array([0] * 3 + [1] * 50 + [2] * 50)
    drawn = client_rows(labels, 3, 2, 43, Seeds(0))
    assert [np.bincount(labels[rows]).tolist() for rows in drawn.rows] == [[3, 20, 20], [3, 20, 20]]


def test_labelled_rows_never_meet_the_stream(scenario_factory):
    scenario = scenario_factory(num_timesteps=2, reference_size=30)
    streamed = scenario.streams.draw(np.arange(8), 1).inputs.flatten(0, 1).flatten(1)
    pool, rows, _ = scenario.references
    labelled = pool.inputs[rows.flatten()].flatten(1)
    assert not (streamed[:, None] == labelled[None]).all(-1).any()
