"""One attacker among ten clients, with the default settings: the other nine keep the accuracy of an honest fleet."""

from functools import partial

import numpy as np
import pytest
import torch

from fedade.cli.choosing import named_settings
from fedade.core import trace
from fedade.experiments.settings import merged
from fedade.flower.server import Server
from fedade.flower.server_app import adapt
from fedade.flower.settings import task_from

from .conftest import names
from .hostile import corrupt, like, replace_uplink, say, uplink
from .traces import told

pytestmark = pytest.mark.slow

LIAR = 3
SETTINGS = ["scenario.num_timesteps=10", "protocol.rounds=5", "protocol.participation=0.5", "seeds=[11]"]
POINTS = 0.5
HONEST: dict[str, float] = {}
"""Measured once, for all attacks."""


def stepped(times, content, update, shared):
    replace_uplink(content, {name: shared[name] + times * (update[name] - shared[name]) for name in update})


def scaled(times, content, update, shared):
    replace_uplink(content, {name: times * shared[name] for name in update})


def noisy(size, content, update, shared, seed=None):
    chance = torch.Generator().manual_seed(seed) if seed else torch.default_generator
    noise = {name: torch.randn(value.shape, generator=chance) for name, value in update.items()}
    replace_uplink(content, {name: shared[name] + size * noise[name] for name in update})


def claiming(attack, content, update, shared):
    attack(content, update, shared)
    say(content, samples=10_000)


ATTACKS = {
    "flipped": partial(stepped, -1),
    "flipped, 100 times": partial(stepped, -100),
    "grown, 100 times": partial(stepped, 100),
    "noise of 0.1": partial(noisy, 0.1),
    "noise of 1": partial(noisy, 1.0),
    "one direction": partial(noisy, 0.1, seed=1),
    "zero layers": lambda content, update, shared: replace_uplink(content, like(update, 0.0)),
    "half the layers": partial(scaled, 0.5),
    "nine times the layers": partial(scaled, 9.0),
    "flipped, with many samples": partial(claiming, partial(stepped, -100)),
    "no step, with many samples": partial(claiming, partial(stepped, 0)),
}


@pytest.fixture
def accuracy(cache, make_grid, tmp_path, monkeypatch):
    """Mean accuracy of the nine honest clients."""
    layers, instruct = {}, Server._instruction

    def overheard(self, member, shared, *others):
        layers.update(shared)
        return instruct(self, member, shared, *others)

    monkeypatch.setattr(Server, "_instruction", overheard)

    def run(folder, attack):
        above = {"scenario": {"num_clients": 10}, "flower": {"clients": names(10), "share": ["accuracy_post"]}}
        task = task_from(merged(named_settings("digits-label", SETTINGS, None), above))
        grid = make_grid(task)
        grid.run_config = {**grid.run_config, "state-dir": str(tmp_path / folder / "state")}
        corrupt(
            grid, names(10)[LIAR], lambda content: attack(content, uplink(content), layers) if uplink(content) else None
        )
        adapt(task, grid, tmp_path / folder)
        rows = told(task, tmp_path / folder)
        return 100 * float(np.nanmean(trace.column(rows, "accuracy_post")[trace.column(rows, "client") != LIAR]))

    return run


@pytest.mark.parametrize("name", ATTACKS)
def test_one_attacker_of_ten_costs_the_others_half_a_point_at_most(accuracy, name):
    if not HONEST:
        HONEST["accuracy"] = accuracy("honest", lambda *_: None)
    assert accuracy("attacked", ATTACKS[name]) > HONEST["accuracy"] - POINTS
