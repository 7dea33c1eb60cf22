"""What calibration chooses of Fed-ADE: who takes the personal step, paces, the anchor, the signal's range."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedade.core.scenario import Scenario
from fedade.methods.fed_ade import FedAde
from fedade.parts.rates import SignalRange

from ..helpers import clock, final_world, only, run
from .checks import assert_maps_agree

FAST = {"rate": {"low": 0.5, "mid": 0.5, "high": 1.0}, "batch_size": 50}
SLOW_BODY = {"paces": {"shared": 1e-3, "weights": 0.1}, **FAST}


@pytest.fixture(scope="module")
def scenario(scenario_factory) -> Scenario:
    return scenario_factory(schedule="squ", num_timesteps=2)


def moved(scenario: Scenario, method: FedAde, **options) -> dict[str, torch.Tensor]:
    """How far each client's personal layers are from the deployed ones, `[C]`."""
    own, deployed = final_world(method, scenario, **options).clients.own, scenario.deployment.parameters
    return {name: (value - deployed[name]).flatten(1).norm(dim=1) for name, value in own.items()}


@pytest.mark.parametrize(("who", "everyone"), [("participants", False), ("all", True)])
def test_the_personal_step_is_taken_by_those_who_are_said_to(scenario, who, everyone):
    bias = moved(scenario, FedAde(personal_step=who, **SLOW_BODY), participation=0.13)["head.bias"]
    assert bool((bias > 0).all()) == everyone
    assert (bias > 0).any()


def test_a_personal_step_of_all_comes_after_the_last_broadcast_and_once(scenario):
    """With a body that no joint step moves, more rounds change nothing."""
    method = FedAde(personal_step="all", joint_epochs=0, paces={"shared": 0}, **FAST)
    once, often = (run(method, scenario, rounds=rounds, participation=1.0) for rounds in (1, 3))
    assert all(
        (first["accuracy_post"] == second["accuracy_post"]).all() for first, second in zip(once, often, strict=True)
    )


def test_paces_move_only_what_they_name(scenario):
    paces = {"shared": 0, "weights": 0, "biases": 1}
    for who in ("participants", "all"):
        distances = moved(scenario, FedAde(personal_step=who, paces=paces, **FAST), participation=1.0)
        assert (distances["head.bias"] > 0).all()
        assert (distances["head.weight"] == 0).all()


def test_a_body_with_a_pace_of_zero_stays_as_deployed(scenario):
    world = final_world(FedAde(paces={"shared": 0}, **FAST), scenario, participation=1.0)
    for name, value in world.server.items():
        torch.testing.assert_close(value, scenario.deployment.parameters[name], rtol=1e-6, atol=0)


def test_an_anchor_holds_the_head_near_the_deployed_one(scenario):
    free, held = (
        moved(scenario, FedAde(personal_step="all", anchor=pull, **SLOW_BODY))["head.bias"].mean() for pull in (0, 0.5)
    )
    assert held < 0.8 * free


@pytest.mark.parametrize(("centred", "rests"), [(True, True), (False, False)])
def test_a_centred_head_rests_while_class_frequencies_are_the_sources(scenario, monkeypatch, centred, rests):
    monkeypatch.setattr("fedade.methods.fed_ade.batch_prior", lambda ctx, _: ctx.deployment.source_prior)
    for shared in (0, 1e-3):
        method = FedAde(personal_step="all", centred=centred, paces={"shared": shared}, **FAST)
        if shared:
            method = method.model_copy(update={"personal_epochs": 0})  # the joint step leaves a centred head alone
        distances = moved(scenario, method, participation=1.0)
        assert all(bool((distance < 1e-6).all()) == rests for distance in distances.values())


def test_a_centred_step_is_the_difference_of_two_gradients_by_plain_autograd(scenario_factory):
    scenario = scenario_factory(schedule="squ", num_timesteps=1)
    deployment, (pool, labelled, _) = scenario.deployment, scenario.references
    method = FedAde(personal_step="all", centred=True, personal_epochs=1, paces={"shared": 0}, **FAST)
    ticking = clock(method, scenario)
    world = ticking.beginning()
    rows = next(iter(ticking.run(world)))
    own = only(world).clients.own
    for client in range(len(labelled)):
        inputs, labels = pool.inputs[labelled[client]], pool.labels[labelled[client]]
        features = deployment.network.represent(deployment.parameters, inputs)

        def gradients(prior, features=features, labels=labels):
            head = {name: value.clone().requires_grad_() for name, value in deployment.personal.items()}
            losses = cross_entropy(deployment.network.classify(head, features), labels, reduction="none")
            risk = sum(prior[label] * losses[labels == label].mean() for label in labels.unique().tolist())
            return dict(zip(head, torch.autograd.grad(risk, list(head.values())), strict=True))

        met, source = gradients(torch.as_tensor(rows["prior"][client])), gradients(deployment.source_prior)
        for name, value in deployment.personal.items():
            expected = value - float(rows["learning_rate"][client]) * (met[name] - source[name])
            torch.testing.assert_close(own[name][client], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [({"reference_draws": "prior"}, "personal_draws to epoch"), ({"objective": "entropy"}, "centred to false")],
)
def test_what_cannot_be_centred_is_refused(settings, remedy):
    with pytest.raises(ValueError, match=remedy):
        FedAde(centred=True, **settings)


def test_the_signals_range_is_stretched_and_the_papers_is_left_alone():
    signal = torch.tensor([0.05, 0.1, 0.2, 0.3, 0.9])
    assert torch.equal(SignalRange().stretched(signal), signal)
    stretched = SignalRange(floor=0.1, top=0.3).stretched(signal)
    torch.testing.assert_close(stretched, torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))


@pytest.mark.parametrize("shared", [0.0, 0.1])
def test_maps_agree(scenario_factory, shared):
    method = FedAde(personal_step="all", anchor=0.01, centred=True, paces={"shared": shared, "weights": 0.1}, **FAST)
    assert_maps_agree(method, scenario_factory(kind="both", schedule="squ", num_timesteps=2))


def test_passes_of_the_common_step_are_counted_for_all(scenario):
    rows = run(FedAde(personal_step="all", **SLOW_BODY), scenario, participation=0.13)
    away = rows[0]["participated"] == 0
    method = FedAde(personal_step="participants", **SLOW_BODY)
    without = next(iter(clock(method, scenario, participation=0.13).run(clock(method, scenario).beginning())))
    assert (rows[0]["passes"][away] > without["passes"][away]).all()
