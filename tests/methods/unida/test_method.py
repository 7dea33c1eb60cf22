"""What UNIDA alone promises; which samples it learns from is tested with its parts."""

import numpy as np
import pytest
import torch

from fedade.core import tree
from fedade.maths.losses.entropy import entropy
from fedade.methods.unida.method import Unida
from fedade.parts.discriminator import domain_logits

from ...helpers import Seen, begin, final_world, observe, predict, run

FAST = {"rate": {"low": 1e-3, "mid": 1e-2, "high": 1e-1}}
VARIANTS = ("proto", "uan", "dance")


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate", num_timesteps=2, num_clients=3)


@pytest.fixture(scope="module")
def observation(scenario) -> Seen:
    return Seen(scenario.streams.draw(np.arange(1), 2).inputs[0], torch.tensor(1), torch.tensor(5))


def after(method: Unida, scenario, observation, times: int = 1):
    client, plan = begin(method, scenario.deployment), {}
    for _ in range(times):
        client, plan = observe(method, scenario.deployment, client, (), observation)
    return client, plan


@pytest.mark.parametrize("variant", VARIANTS)
def test_known_samples_are_predicted_as_usual_and_rejection_is_a_choice(scenario, observation, variant):
    method = Unida(**FAST, variant=variant)
    client, plan = after(method, scenario, observation)
    deployment, inputs = scenario.deployment, observation.inputs
    forced = predict(method, deployment, client, (), inputs)
    rejecting = predict(method.model_copy(update={"reject_as_error": True}), deployment, client, (), inputs)
    assert forced.shape == (20, 10)
    assert rejecting.shape == (20, 11)
    unknown = rejecting.argmax(-1) == 10
    assert torch.isclose(unknown.float().mean(), plan["unknown"])
    assert torch.equal(rejecting[~unknown, :10], forced[~unknown])


@pytest.mark.parametrize("variant", ["proto", "dance"])
def test_uncertain_samples_count_as_unknown(scenario, variant):
    method = Unida(variant=variant, proto_margin=0.0, reject_as_error=True, steps=0)
    client = begin(method, scenario.deployment)
    inputs = scenario.streams.draw(np.arange(1), 2).inputs[0]
    forced = predict(method.model_copy(update={"reject_as_error": False}), scenario.deployment, client, (), inputs)
    unknown = predict(method, scenario.deployment, client, (), inputs).argmax(-1) == 10
    assert torch.equal(unknown, entropy(forced) > np.log(10) / 2)
    assert unknown.any()
    assert not unknown.all()


def test_prototypes_teach_the_known_samples(scenario, observation):
    def certainty(**settings) -> float:
        method = Unida(**FAST, pair_size=64, **settings)
        client, _ = after(method, scenario, observation, 3)
        return float(entropy(predict(method, scenario.deployment, client, (), observation.inputs)).mean())

    taught = certainty(confidence=0.0, proto_margin=0.0)
    untaught = certainty(confidence=1.0, proto_margin=1.0)
    assert taught < untaught


def test_the_bank_of_dance_fills_and_does_not_grow(scenario, observation):
    method = Unida(variant="dance", bank_size=30, steps=1)
    once, _ = after(method, scenario, observation, 1)
    twice, _ = after(method, scenario, observation, 2)
    assert (once.memory["filled"], twice.memory["filled"]) == (20, 30)
    assert once.memory["bank"].shape == twice.memory["bank"].shape


def test_the_judge_of_uan_learns_to_tell_the_domains_apart(scenario, observation):
    method = Unida(variant="uan", discriminator_rate=0.1, pair_size=64)
    early, late = after(method, scenario, observation, 1)[0], after(method, scenario, observation, 6)[0]
    assert _judged_apart(scenario, late, observation) > _judged_apart(scenario, early, observation)


def _judged_apart(scenario, client, observation) -> float:
    deployment = scenario.deployment
    model = {**deployment.parameters, **client.own}
    source, target = (
        domain_logits(client.discriminators["judge"], deployment.network.represent(model, inputs)).mean()
        for inputs in (deployment.reference.inputs, observation.inputs)
    )
    return float(source - target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_clients_together_are_clients_alone(scenario, variant):
    method = Unida(**FAST, variant=variant, pair_size=8, steps=2)
    together, apart = final_world(method, scenario), final_world(method, scenario, vectorised=False)
    for one, other in zip(tree.leaves(together.clients), tree.leaves(apart.clients), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_sample_is_enough(scenario_factory, variant):
    for rows in run(Unida(**FAST, variant=variant, steps=2), scenario_factory(samples=1, num_timesteps=2)):
        assert all(np.isfinite(values).all() for values in rows.values())
