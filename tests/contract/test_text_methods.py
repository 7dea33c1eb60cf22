"""Promises that every registered method keeps on texts, with AdamW, clipping and draws by the prior."""

import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fedade.checking.checks import OtherStreams, relabelled
from fedade.checking.trials import AsIfRecorded
from fedade.core import tree
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.engine.clock import World
from fedade.methods import METHODS
from fedade.parts.composition import trainable, trainable_shared
from fedade.parts.last_layers import classified, frozen_features, last_layer

from ..helpers import QUICKER, Rows, beginning, clock, context, final_world, only, predict, quick
from .texts import text_scenario

pytestmark = [
    # Looked for, not imported: whoever only collects tests need not wait for it.
    pytest.mark.skipif(not (find_spec("peft") and find_spec("transformers")), reason="needs fedade[text]"),
    # Which is a test of its own.
    pytest.mark.filterwarnings("ignore:.*has no BatchNorm layer:RuntimeWarning"),
]

SETTINGS = {
    **QUICKER,
    "rate": {"low": 1e-3, "mid": 3e-3, "high": 1e-2},
    "optimiser": {"name": "adamw", "clip": 1.0},
    "reference_draws": "prior",
    "batch_size": 4,
    "pair_size": 4,
    "reliable_entropy": 1.0,
    "views": 1,
    "memory_size": 4,
    "least_loss": -2.0,
    "warm_up": 1,
}
MADE_FOR_BATCH_NORM = {
    "bn-adapt", "tent", "sar", "cotta", "atp", "fed-ade-release", "note", "rotta", "delta", "roid", "deyo",
    "hybrid-ttn", "tribe", "poem", "unitta", "pfed-bbn", "fed-tsa",
}  # fmt: skip
ONLY_FOR_BATCH_NORM = {"fed-tsa"}
"""What it remembers is of BatchNorm layers alone, of which the texts' model has none."""
SUMMARIES = {"mean_feature", "condition_samples", "condition_sizes"}
"""What is shared beside weights."""
SHARES_THE_LOWER_ADAPTERS = {
    "fed-ade", "fed-ade-release", "fix-lr-low", "fix-lr-mid", "fix-lr-high", "fix-lr-mean", "shuffled-lr",
    "fed-rep", "fed-pseudo",
}  # fmt: skip


def made(name: str) -> Method:
    return quick(name, SETTINGS)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return text_scenario()


class Ran(NamedTuple):
    """A method, and what a run of it leaves behind."""

    name: str
    method: Method
    rows: Rows
    world: World
    warnings: list[str]


ONE_NAME_PER_CLASS = {getattr(make, "func", make): name for name, make in reversed(list(METHODS.items()))}
"""Names that only change a setting are tried on images."""


@pytest.fixture(scope="module", params=sorted(ONE_NAME_PER_CLASS.values()))
def ran(request, scenario) -> Ran:
    """Two timesteps of all clients together."""
    method = made(request.param)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        world = beginning(method, scenario)
        rows = [dict(step) for step in clock(method, scenario, participation=1.0).run(world)]
    return Ran(request.param, method, rows, only(world), [str(warning.message) for warning in told])


def test_clients_together_are_clients_alone_and_never_see_a_label(ran, scenario):
    others = OtherStreams(scenario.streams, drawn=relabelled)
    hidden = scenario if ran.method.card.oracle else replace(scenario, streams=others)
    alone = final_world(ran.method, hidden, participation=1.0, vectorised=False)
    together = tree.leaves((ran.world.clients, ran.world.server))
    for one, other in zip(together, tree.leaves((alone.clients, alone.server)), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-3)


def test_the_frozen_base_stays_home(ran, scenario):
    """Only adapters and the classifier travel; where layers are split, only the lower adapters."""
    if not ran.method.has_rounds:
        assert all((step["bytes_sent"] == 0).all() for step in ran.rows)
        return
    server = ran.method.begin_server(scenario.deployment)
    sent = set(server) - SUMMARIES
    assert sent <= set(trainable(scenario.deployment))
    assert all("lora" in key or "classifier" in key for key in sent)
    if ran.name in SHARES_THE_LOWER_ADAPTERS:
        assert set(server) == set(trainable_shared(scenario.deployment))
        assert all(key.startswith("body.") for key in server)
        assert all((step["bytes_sent"] == tree.num_bytes(server)).all() for step in ran.rows)


def test_models_move_and_predict(ran, scenario):
    assert all(np.isfinite(values).all() for step in ran.rows for values in step.values())
    inputs = scenario.streams.draw(np.arange(1), 1).inputs[0]
    before, after = (
        predict(ran.method, scenario.deployment, tree.take(world.clients, 0), world.server, inputs)
        for world in (only(beginning(ran.method, scenario)), ran.world)
    )
    np.testing.assert_allclose(after.sum(-1), 1, atol=1e-5)
    remembers = bool(tree.leaves(ran.world.clients)) and ran.name not in ONLY_FOR_BATCH_NORM
    assert torch.equal(before, after) != remembers


@pytest.mark.parametrize("name", ["atlas", "cotta", "fed-ade", "fed-ccfa"])
def test_steps_can_be_recorded(name, scenario):
    method = made(name)
    watched = replace(clock(method, scenario, participation=1.0), execution=AsIfRecorded())
    assert len(list(watched.advance(beginning(method, scenario)))) == 2


def test_methods_for_batch_norm_say_so_once(ran):
    told = [line for line in ran.warnings if "'tiny-llama' has no BatchNorm layer, for which it was made" in line]
    assert len(told) <= 1
    assert told or ran.name not in MADE_FOR_BATCH_NORM
    assert told == ran.warnings


@pytest.mark.parametrize("name", ["tent", "sar", "cotta", "atp"])
def test_they_move_the_scales_of_the_norms(name, scenario):
    clients = final_world(made(name), scenario).clients
    moved = {"cotta": lambda: clients.student, "sar": lambda: clients.learner.own}.get(name, lambda: clients.own)()
    scales = {key: value for key, value in moved.items() if "norm" in key}
    assert scales
    assert any(not torch.equal(value[0], scenario.deployment.parameters[key]) for key, value in scales.items())
    assert name in ("cotta", "atp") or set(moved) == set(scales)


def test_moments_stay_with_the_client(scenario):
    """Rounds count on: two timesteps of two rounds, each with two joint and two personal steps."""
    world = final_world(made("fed-ade"), scenario, rounds=2, participation=1.0)
    assert world.clients.states.joint.steps.tolist() == [8, 8, 8]
    assert world.clients.states.personal.steps.tolist() == [8, 8, 8]
    assert not torch.equal(world.clients.states.joint.first[0], world.clients.states.joint.first[1])


def test_the_classifier_is_the_last_layer(scenario):
    """What it sees, and its logits, are those of the whole network."""
    deployment = scenario.deployment
    assert set(last_layer(deployment)) == {"head.classifier.weight", "head.classifier.bias"}
    inputs = deployment.reference.inputs
    with torch.no_grad():
        found = classified(deployment, last_layer(deployment), frozen_features(context(deployment, inputs)))
        torch.testing.assert_close(found, deployment.network.logits(deployment.parameters, inputs))
