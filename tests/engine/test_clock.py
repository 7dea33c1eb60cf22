"""What the clock promises, whatever the method."""

from dataclasses import replace

import pytest
import torch

from fedade.core import tree
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_plus.method import FedAdePlus

from ..helpers import clock, run


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
