"""Promises that every registered method keeps; the registry is the list, so a new method is tested by itself."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedade.methods
from fedade.core import storage, tree
from fedade.core.method import Method
from fedade.core.scenario import Batch, Scenario, Streams
from fedade.methods import METHODS

from ..helpers import (
    beginning,
    clock,
    final_world,
    first_batch,
    local_round,
    observe,
    only,
    personalise,
    predict,
    run,
)
from .recording import AsIfRecorded, OnlyRecordable

QUICK = {"rate": {"low": 1e-3, "mid": 1e-2, "high": 3e-2}, "training_rounds": 3, "views": 2}
"""Rates at which a few steps show in every parameter, and less of what merely takes time."""


@pytest.fixture(params=sorted(METHODS))
def method(request) -> Method:
    make = METHODS[request.param]
    fields = getattr(make, "func", make).model_fields
    return make(**{name: value for name, value in QUICK.items() if name in fields})


@pytest.fixture(scope="module")
def scenario(scenario_factory) -> Scenario:
    return scenario_factory(kind="both", schedule="squ", num_timesteps=3)


def test_the_suite_covers_every_method_and_every_file():
    files = {path.stem for path in Path(fedade.methods.__file__).parent.glob("[!_]*")}
    registered = {getattr(make, "func", make).__module__.split(".")[2] for make in METHODS.values()}
    assert files == registered


def test_it_keeps_the_contract(method):
    assert isinstance(method, Method)
    assert method.card.summary
    assert method.card.paper
    with pytest.raises(ValueError, match="frozen"):
        method.anything = 1


def equal(first: list[dict], second: list[dict], but: tuple[str, ...] = ()) -> None:
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - set(but):
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_the_same_seed_gives_the_same_bits(method, scenario):
    equal(run(method, scenario), run(method, scenario))


@dataclass(frozen=True)
class Relabelled:
    """The same inputs, other labels and priors."""

    streams: Streams

    def __getattr__(self, name):
        return getattr(self.streams, name)

    def draw(self, clients, timestep, purpose="stream") -> Batch:
        batch = self.streams.draw(clients, timestep, purpose)
        return batch._replace(labels=(batch.labels + 1) % 10, prior=batch.prior.roll(1, -1))


SCORES = ("accuracy_pre", "accuracy_post", "true_prior")


def test_hidden_labels_change_the_score_only(method, scenario):
    relabelled = replace(scenario, streams=Relabelled(scenario.streams))
    honest, other = run(method, scenario), run(method, relabelled)
    assert any((one["accuracy_post"] != two["accuracy_post"]).any() for one, two in zip(honest, other, strict=True))
    if not method.card.oracle:
        equal(honest, other, but=SCORES)


@dataclass(frozen=True)
class Permuted:
    """The same clients in another order."""

    streams: Streams
    order: np.ndarray

    def __getattr__(self, name):
        return getattr(self.streams, name)

    def draw(self, clients, timestep, purpose="stream") -> Batch:
        return self.streams.draw(self.order[clients], timestep, purpose)


def test_permuting_clients_permutes_the_results(method, scenario, monkeypatch):
    order = np.array([3, 1, 4, 7, 5, 0, 2, 6])
    # A client's own draws go by its number, so a permuted client must bring its number along.
    from fedade.core.seeds import Seeds

    plain_number = Seeds.number
    straight = run(method, scenario, participation=1.0)
    monkeypatch.setattr(
        Seeds,
        "number",
        lambda self, purpose, client, **at: plain_number(self, purpose, client=int(order[client]), **at),
    )
    permuted = run(method, replace(scenario, streams=Permuted(scenario.streams, order)), participation=1.0)
    for one, other in zip(straight, permuted, strict=True):
        for name in one.keys() - {"client"}:
            # Sums over clients are taken in another order, so rounding differs and may turn a tie.
            limit = 0.11 if name.startswith("accuracy") else 1e-4
            np.testing.assert_allclose(one[name][order], other[name], atol=limit, rtol=1e-3, err_msg=name)


def test_state_is_never_mutated(method, scenario):
    world = only(beginning(method, scenario))
    deployed = {name: value.clone() for name, value in scenario.deployment.parameters.items()}
    reference = scenario.deployment.reference.inputs.clone()
    one = tree.take(world.clients, 0)
    kept = tree.tree_map(torch.clone, (one, world.server))
    looked = first_batch(scenario)
    with torch.no_grad():
        new, plan = observe(method, scenario.deployment, one, world.server, looked)
        if method.has_rounds:
            before = tree.tree_map(torch.clone, (new, plan))
            moved, planned, uplink = local_round(
                method, scenario.deployment, new, plan, world.server, looked, torch.tensor(5)
            )
            server, told = method.aggregate(
                scenario.deployment, world.server, tree.stack([uplink, uplink]), torch.ones(2)
            )
            personalise(
                method, scenario.deployment, moved, planned, server, tree.take(told, 0), looked, torch.tensor(5)
            )
            same((new, plan), before)
        predict(method, scenario.deployment, new, world.server, looked.inputs)
    same((one, world.server), kept)
    same(scenario.deployment.parameters, deployed)
    same(scenario.deployment.reference.inputs, reference)


def same(first, second) -> None:
    ones, others = tree.leaves(first), tree.leaves(second)
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one, other)


def test_state_survives_save_and_load(method, scenario, tmp_path):
    world = final_world(method, scenario)
    named = tree.to_named(world.clients, "clients") | tree.to_named(world.server, "server")
    storage.save_tensors(tmp_path / "world.safetensors", named, {"timestep": "3"})
    loaded, _ = storage.load_tensors(tmp_path / "world.safetensors")
    fresh = only(beginning(method, scenario))
    same(tree.from_named(fresh.clients, loaded, "clients"), world.clients)
    same(tree.from_named(fresh.server, loaded, "server"), world.server)


def test_diagnostics_are_finite_and_one_per_client(method, scenario):
    for rows in run(method, scenario):
        for name, values in rows.items():
            assert len(values) == 8, name
            assert np.isfinite(values).all(), name
        if "prior" in rows:
            assert (rows["prior"] >= 0).all()
            np.testing.assert_allclose(rows["prior"].sum(1), 1, atol=1e-5)


def test_one_sample_per_batch_is_enough(method, scenario_factory):
    for rows in run(method, scenario_factory(samples=1, num_timesteps=2)):
        assert all(np.isfinite(values).all() for values in rows.values())


def test_every_client_alone_is_every_client_together(method, scenario):
    """The vectorised map and the loop agree on everything that a run leaves behind."""
    together, apart = final_world(method, scenario), final_world(method, scenario, vectorised=False)
    for one, other in zip(
        tree.leaves((together.clients, together.server)), tree.leaves((apart.clients, apart.server)), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_its_steps_can_be_recorded(method, scenario):
    watched = replace(clock(method, scenario, rounds=2), execution=AsIfRecorded())
    assert len(list(watched.advance(beginning(method, scenario)))) == 3


@pytest.mark.parametrize("refused", [lambda: torch.ones(1).sum().item(), lambda: torch.tensor(1.0)])
def test_what_cannot_be_recorded_is_noticed(refused):
    with pytest.raises(AssertionError, match=r"reads a number back|copies a Python number"), OnlyRecordable():
        refused()
