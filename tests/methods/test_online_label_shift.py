"""Promises that all local methods for online label shift share."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedade.core import tree
from fedade.core.deployment import Reference
from fedade.core.errors import FedadeError
from fedade.methods.atlas import Atlas
from fedade.methods.flh_ftl import FlhFtl
from fedade.methods.fth import Fth
from fedade.methods.prior_reweighting import PriorReweighting
from fedade.methods.rogd import Rogd
from fedade.methods.source import Source

from ..helpers import Seen, begin, final_world, mean, observe, predict, run

REWEIGHTING = {
    "prior-bbse": PriorReweighting,
    "prior-em": partial(PriorReweighting, prior="mlls"),
    "fth": Fth,
    "ftfwh": partial(Fth, window=100),
    "flh-ftl": FlhFtl,
    "rogd": Rogd,
}
ALL = REWEIGHTING | {"uogd": partial(Atlas, pool="single"), "atlas": Atlas}


@pytest.fixture(scope="module")
def drift(scenario_factory):
    """The default label shift: every client's prior moves linearly to its own target."""
    return scenario_factory(num_clients=20, num_timesteps=12, samples=30)


@pytest.fixture(scope="module")
def source_accuracy(drift) -> float:
    return mean(run(Source(), drift), "accuracy_post")


@pytest.mark.parametrize("name", sorted(ALL))
def test_under_label_shift_it_does_no_harm_and_the_prior_trackers_help(name, drift, source_accuracy):
    accuracy = mean(run(ALL[name](), drift), "accuracy_post")
    assert accuracy > source_accuracy - 0.01
    if name in ("fth", "prior-em", "flh-ftl"):
        assert accuracy > source_accuracy + 0.005


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_client_learns_from_its_own_batches_alone(name, scenario_factory):
    few, many = scenario_factory(num_clients=2, num_timesteps=2), scenario_factory(num_clients=4, num_timesteps=2)
    alone, among = (final_world(ALL[name](), scenario).clients for scenario in (few, many))
    for one, other in zip(tree.leaves(alone), tree.leaves(among), strict=True):
        torch.testing.assert_close(one, other[:2], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["prior-bbse", "fth", "flh-ftl", "rogd", "atlas"])
def test_a_literal_inverse_of_a_singular_confusion_matrix_is_refused(name, scenario_factory):
    deployment = scenario_factory(num_clients=2, num_timesteps=1).deployment
    singular = replace(deployment, confusion=torch.full_like(deployment.confusion, 0.1))
    with pytest.raises(FedadeError, match="simplex_ls"):
        begin(ALL[name](prior="inv"), singular)


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_singular_confusion_matrix_and_blank_inputs_leave_the_state_finite(name, scenario_factory):
    deployment = scenario_factory(num_clients=2, num_timesteps=1).deployment
    singular = replace(deployment, confusion=torch.full_like(deployment.confusion, 0.1))
    method, one = ALL[name](), torch.ones((), dtype=torch.int64)
    blank = Seen(torch.zeros_like(deployment.reference.inputs[:5]), one, one)
    client, _ = observe(method, singular, begin(method, singular), (), blank)
    assert all(leaf.isfinite().all() for leaf in tree.leaves(client))
    assert predict(method, singular, client, (), blank.inputs).isfinite().all()


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_class_absent_from_the_reference_set_leaves_the_state_finite(name, scenario_factory):
    deployment = scenario_factory(num_clients=2, num_timesteps=1).deployment
    known = deployment.reference.labels != 7
    partial_reference = Reference(deployment.reference.inputs[known], deployment.reference.labels[known])
    lacking = replace(deployment, reference=partial_reference)
    method, one = ALL[name](), torch.ones((), dtype=torch.int64)
    only_sevens = Seen(deployment.reference.inputs[~known], one, one)
    client, _ = observe(method, lacking, begin(method, lacking), (), only_sevens)
    assert all(leaf.isfinite().all() for leaf in tree.leaves(client))
