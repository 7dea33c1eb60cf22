"""Bounds that the fleet's own updates teach."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.flower.bounds import RECENT, bounded_weights, distance, learnt_bound, remembered, scaled_back

honest = st.floats(0.5, 2.0)


@given(st.lists(honest, min_size=2, max_size=8), st.floats(0, 1e9))
def test_one_liar_cannot_lift_the_bound_above_what_an_honest_client_moves(others, lie):
    assert learnt_bound([lie, *others], [], 3.0, 9) <= 3.0 * max(others)


@given(st.lists(honest, min_size=2, max_size=8))
def test_one_client_that_claims_not_to_move_cannot_lower_it_to_nothing(others):
    assert learnt_bound([0.0, *others], [], 3.0, 9) >= 3.0 * min(others)


def test_a_liar_alone_in_an_exchange_is_measured_by_those_before():
    assert learnt_bound([1e6], [1.0, 1.1, 0.9], 3.0, 9) == pytest.approx(3.0)
    assert learnt_bound([1e6, 1.0], [1.0, 1.1, 0.9], 3.0, 9) == pytest.approx(3.0)


def test_a_fleet_that_begins_to_move_is_not_held_back_by_its_past():
    assert learnt_bound([5.0, 6.0, 7.0], [0.1] * 60, 3.0, 9) == pytest.approx(18.0)


def test_a_fleet_that_does_not_move_has_no_bound_to_exceed():
    assert learnt_bound([0.0, 0.0, 0.0], [0.0], 3.0, 9) == 0.0


@given(st.lists(st.floats(0, 1e9), max_size=2 * RECENT))
def test_a_client_alone_is_never_scaled_back_and_teaches_those_who_come_later_nothing(alone):
    recent: list[float] = []
    for moved in alone:
        assert moved <= learnt_bound([moved], recent, 3.0, clients=1)
        recent = remembered(recent, [moved], clients=1)
    assert learnt_bound([1e9, 1.0], recent, 3.0, clients=2) == 3.0


@given(st.lists(honest, min_size=1, max_size=3 * RECENT), st.lists(honest, min_size=1, max_size=8))
def test_of_a_fleet_the_last_updates_are_remembered(recent, distances):
    assert remembered(recent, distances, clients=2) == [*recent, *distances][-RECENT:]


def test_an_update_is_scaled_back_in_its_own_direction_and_one_within_the_bound_stays_as_it_is():
    shared = {"a": torch.zeros(2), "b": torch.ones(1)}
    update = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([5.0]), "votes": torch.tensor([True])}
    moved = scaled_back(update, shared, 2.5)
    assert moved["a"].tolist() == [1.5, 0.0]
    assert moved["b"].tolist() == [3.0]
    assert moved["votes"] is update["votes"]
    assert distance(update, shared) == 5.0
    assert scaled_back(update, shared, 5.0) is update


def test_no_count_weighs_more_than_a_multiple_of_the_median():
    counts = torch.tensor([10.0, 12.0, 20.0, 9999.0])
    assert bounded_weights(counts, 3.0).tolist() == [10.0, 12.0, 20.0, 36.0]
    assert bounded_weights(torch.tensor([50.0, 50.0]), 3.0).tolist() == [50.0, 50.0]
