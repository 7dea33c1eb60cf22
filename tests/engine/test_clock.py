"""What the clock promises, whatever the method."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.engine.execution import Direct
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.fed_avg import FedAvg

from ..helpers import clock, quick, run


@pytest.mark.parametrize(("gradient_steps", "takes_part"), [(False, False), (True, True)])
def test_whether_there_are_rounds_is_a_value_of_the_configured_method(scenario_factory, gradient_steps, takes_part):
    method = FedAdePlus(gradient_steps=gradient_steps)
    assert method.has_rounds == takes_part
    for rows in run(method, scenario_factory(), rounds=2):
        assert rows["participated"].any() == takes_part
        assert rows["bytes_sent"].any() == takes_part
        assert rows["bytes_received"].any() == takes_part


def test_without_rounds_nobody_but_the_scored_clients_is_awake(scenario_factory):
    runner = replace(clock(FedAdePlus(), scenario_factory(num_clients=12)), scored_clients=3)
    world, start = runner.beginning(), runner.beginning()
    rows = list(runner.run(world))
    moved = (world.clients.prior[0] != start.clients.prior[0]).any(-1).nonzero().ravel().tolist()
    assert moved == rows[0]["client"].tolist()


def test_a_beginning_on_disk_takes_no_memory_for_all_clients(scenario_factory, tmp_path, monkeypatch):
    """States are written from one client's, expanded but never copied in memory."""
    scenario, written = scenario_factory(num_clients=50), []
    plain = clock(FedAde(), scenario)
    mapped = tree.mapped

    def watched(states, folder):
        written.append(states)
        return mapped(states, folder)

    monkeypatch.setattr(tree, "mapped", watched)
    on_disk = replace(plain, state_folder=tmp_path, more_federations=(Federation(scenario, Seeds(1)),)).beginning()
    held = sum(leaf.untyped_storage().nbytes() for leaf in tree.leaves(written[0]))
    assert held < tree.num_bytes(on_disk.clients) / 20
    for one, other in zip(tree.leaves(on_disk.clients), tree.leaves(plain.beginning().clients), strict=True):
        assert torch.equal(one[:1], other)
        assert torch.equal(one[1:], other)


@pytest.mark.parametrize("vectorised", [True, False])
def test_who_has_not_joined_is_neither_scored_nor_asked_and_begins_as_deployed(scenario_factory, vectorised):
    scenario = scenario_factory(stream="late", num_timesteps=6)
    first = scenario.streams.first_timesteps
    runner = clock(FedAdePlus(gradient_steps=True), scenario, participation=1.0, vectorised=vectorised)
    world, start = runner.beginning(), runner.beginning()
    for timestep, rows in enumerate(runner.run(world), 1):
        there = np.flatnonzero(first <= timestep)
        assert rows["client"].tolist() == there.tolist()
        assert rows["participated"].tolist() == [1] * len(there)
        moved = (world.clients.prior[0] != start.clients.prior[0]).any(-1)
        assert moved.nonzero().ravel().tolist() == there.tolist()
    assert len(there) == 8


def test_a_share_of_those_who_are_there_takes_part(scenario_factory):
    scenario = scenario_factory(stream="late", num_timesteps=6)
    for timestep, rows in enumerate(run(FedAvg(), scenario, participation=0.5), 1):
        assert rows["participated"].sum() == round(0.5 * (scenario.streams.first_timesteps <= timestep).sum())


def test_federations_side_by_side_have_their_own_late_clients(scenario_factory):
    one, other = (scenario_factory(stream="late", num_timesteps=6, seed=seed) for seed in (0, 1))
    runner = replace(clock(FedAvg(), one), more_federations=(Federation(other, Seeds(1)),))
    for timestep, pending in enumerate(runner.advance(runner.beginning()), 1):
        for number, scenario in enumerate((one, other)):
            there = np.flatnonzero(scenario.streams.first_timesteps <= timestep)
            assert pending.known["client"][number].tolist() == there.tolist()


def test_a_panel_of_which_nobody_has_joined_is_refused(scenario_factory):
    scenario = scenario_factory(stream="late")
    seeds = next(
        Seeds(seed)
        for seed in range(50)
        if scenario.streams.first_timesteps[Seeds(seed).generator("scored").choice(8, 1, replace=False)] > 1
    )
    runner = replace(clock(FedAvg(), scenario), scored_clients=1, seeds=seeds)
    with pytest.raises(FedadeError, match="scored_clients: none of them has joined yet; score more"):
        next(runner.run(runner.beginning()))


class Spoiling(Direct):
    """Rehearses, while every body sees nothing but zeros."""

    def rehearse(self, kind, work):
        represent = Network.represent
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Network, "represent", lambda *given: torch.zeros_like(represent(*given)))
            work()


@pytest.mark.parametrize("name", ["fed-ade", "fed-ade-plus", "rogd", "fed-avg", "uda"])
@pytest.mark.parametrize("on_disk", [True, False])
def test_nothing_is_kept_of_a_rehearsal(scenario_factory, tmp_path, name, on_disk):
    def rows_of(execution):
        scenario = scenario_factory(num_timesteps=3)
        scenario = replace(scenario, deployment=replace(scenario.deployment))  # whatever other tests have measured
        one = replace(clock(quick(name), scenario, rounds=2), execution=execution)
        one = replace(one, state_folder=tmp_path / execution.__class__.__name__) if on_disk else one
        return list(one.run(one.beginning()))

    for found, expected in zip(rows_of(Spoiling()), rows_of(Direct()), strict=True):
        assert found.keys() == expected.keys()
        for column in found:
            np.testing.assert_array_equal(found[column], expected[column], column)
