"""Federations side by side, sleeping clients and states in files leave every number as it was."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, Federation
from fedade.engine.pending import collect
from fedade.engine.steps import Maps
from fedade.methods import METHODS

from ..helpers import QUICKER, quick, with_streams

TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}


def clock_of(method, scenario, seed: int, maps: Maps = Maps(Vectorised(), Vectorised()), **options) -> Clock:  # noqa: B008
    return Clock(method, scenario, Rounds(2, 0.5), Seeds(seed), maps, **options)


def rows_and_world(clock: Clock):
    world = clock.beginning()
    pending = list(clock.advance(world))
    return [collect(pending, number) for number in range(len(clock.federations))], world


@pytest.mark.parametrize(
    ("name", "federation_map"),
    [*((name, Vectorised()) for name in sorted(METHODS)), ("fed-ade", loop), ("tent", loop)],
)
def test_side_by_side_is_one_after_the_other(scenario_factory, name, federation_map):
    method, first = quick(name, QUICKER), scenario_factory(num_clients=4, num_timesteps=2, samples=10)
    places = [(first, 0), (with_streams(first, "squ", 3), 3)]
    further = tuple(Federation(scenario, Seeds(seed)) for scenario, seed in places[1:])
    maps = Maps(Vectorised(), Vectorised(), federation_map)
    together, world = rows_and_world(clock_of(method, first, 0, maps, more_federations=further))
    for number, (scenario, seed) in enumerate(places):
        (alone,), own = rows_and_world(clock_of(method, scenario, seed))
        for column, values in alone.items():
            limit = 0.11 if column.startswith("accuracy") else 1e-4
            np.testing.assert_allclose(together[number][column], values, atol=limit, rtol=1e-3, err_msg=column)
        ones = tree.leaves((tree.take(world.clients, number), tree.take(world.server, number)))
        others = tree.leaves((tree.take(own.clients, 0), tree.take(own.server, 0)))
        for one, other in zip(ones, others, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE)


def test_federations_side_by_side_replay_rates_of_their_own(scenario_factory):
    first = scenario_factory(num_clients=4, num_timesteps=2, samples=10)
    measured = [tuple(np.linspace(0.001, high, 3000).tolist()) for high in (0.01, 0.05)]
    for name in ("fix-lr-mean", "shuffled-lr"):
        methods = [METHODS[name](measured_rates=rates) for rates in measured]
        further = (Federation(with_streams(first, "squ", 3), Seeds(3), methods[1]),)
        (_, together), _ = rows_and_world(clock_of(methods[0], first, 0, more_federations=further))
        (alone,), _ = rows_and_world(clock_of(methods[1], with_streams(first, "squ", 3), 3))
        np.testing.assert_allclose(together["learning_rate"], alone["learning_rate"], rtol=1e-6)
        if name == "fix-lr-mean":
            np.testing.assert_allclose(together["learning_rate"], np.mean(measured[1]), rtol=1e-5)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if quick(name, QUICKER).rates))
def test_federations_side_by_side_have_rates_of_their_own(scenario_factory, name):
    slow, scenario = quick(name, QUICKER), scenario_factory(num_clients=4, num_timesteps=2, samples=10)
    fast = slow.at_rates({which: 3 * rate for which, rate in slow.rates.items()})
    maps = Maps(Vectorised(), Vectorised(), Vectorised())
    together, world = rows_and_world(
        clock_of(slow, scenario, 0, maps, more_federations=(Federation(scenario, Seeds(0), fast),))
    )
    for number, method in enumerate((slow, fast)):
        (alone,), own = rows_and_world(clock_of(method, scenario, 0))
        if "learning_rate" in alone:
            np.testing.assert_allclose(together[number]["learning_rate"], alone["learning_rate"], rtol=1e-5)
        ones, others = (tree.leaves(tree.take(*place)) for place in ((world.clients, number), (own.clients, 0)))
        for one, other in zip(ones, others, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_a_state_in_files_is_the_same_state(scenario_factory, tmp_path):
    scenario = scenario_factory()
    kept = clock_of(quick("fed-ade"), scenario, 0)
    mapped = replace(kept, state_folder=tmp_path / "states")
    (rows,), world = rows_and_world(kept)
    (others,), on_disk = rows_and_world(mapped)
    for name, values in rows.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)
    for one, other in zip(tree.leaves(world.clients), tree.leaves(on_disk.clients), strict=True):
        assert torch.equal(one, other)
    files = list((tmp_path / "states").iterdir())
    assert sum(file.stat().st_size for file in files) == tree.num_bytes(world.clients), "the state is on disk"


def test_who_is_neither_scored_nor_takes_part_sleeps(scenario_factory):
    scenario = scenario_factory(num_clients=40)
    few = replace(clock_of(quick("fed-ade"), scenario, 0), rounds=Rounds(1, 0.05), scored_clients=5)
    start, world = few.beginning(), few.beginning()
    rows = [collect([step]) for step in few.advance(world)]
    assert all(len(step["client"]) == 5 for step in rows)
    assert all(np.array_equal(step["client"], rows[0]["client"]) for step in rows)
    took_part = {int(c) for t in range(1, 5) for c in few.rounds.participants(few.seeds, 40, t).ravel()}
    moved = (world.clients.previous[0] != start.clients.previous[0])[0].any(-1)
    assert {int(c) for c in moved.nonzero().ravel()} == took_part | set(rows[0]["client"].tolist())


def test_scoring_some_gives_the_numbers_of_scoring_all_where_nobody_sleeps(scenario_factory):
    scenario = scenario_factory(num_clients=6)
    everyone = replace(clock_of(quick("fed-ade"), scenario, 0), rounds=Rounds(1, 1.0))
    some = replace(everyone, scored_clients=2)
    (all_rows,), _ = rows_and_world(everyone)
    (rows,), _ = rows_and_world(some)
    chosen = np.isin(all_rows["client"], rows["client"])
    for name in ("accuracy_post", "learning_rate", "participated", "bytes_sent"):
        np.testing.assert_allclose(rows[name], all_rows[name][chosen], atol=1e-6, err_msg=name)
