import torch
from torch.func import vmap

from fedade.core.tree import take
from fedade.maths.losses import class_weights, estimated_risk
from fedade.methods.fed_poe import FedPoe

from ..helpers import begin, observe, predict
from .checks import (
    RATE,
    assert_close,
    first_batches,
    of_client,
    unlabelled,
)


def observe_for(method, scenario, client, shared, timesteps):
    """One client's state after some timesteps without a server, and its plans."""
    plans = []
    for timestep in range(1, timesteps + 1):
        looked = of_client(first_batches(scenario, timestep), 0)
        seen = looked if method.card.oracle else unlabelled(looked)
        client, plan = observe(method, scenario.deployment, client, shared, seen)
        plans.append(plan)
    return client, plans


def risk(deployment, probabilities, prior):
    labels = deployment.reference.labels
    return float(estimated_risk(probabilities.log(), labels, class_weights(prior, labels)))


def test_the_ensemble_leaves_its_worst_member_behind(scenario_factory):
    scenario = scenario_factory(num_clients=2, num_timesteps=8)
    deployment, method = scenario.deployment, FedPoe(rate=RATE, steps=0, weight_rate=0.5)
    sound, fresh = method.begin_server(deployment), begin(method, deployment)
    broken = {name: value.flip(0) for name, value in sound.items()}
    spoilt = fresh._replace(local=broken)
    client, plans = observe_for(method, scenario, spoilt, sound, 8)
    local_weights = [float(plan["weight_local"]) for plan in plans]
    assert local_weights == sorted(local_weights, reverse=True)
    assert local_weights[-1] < 0.05

    inputs, prior = deployment.reference.inputs, plans[-1]["prior"]
    ensemble, undecided = (predict(method, deployment, one, sound, inputs) for one in (client, spoilt))
    worst = deployment.network.logits({**deployment.parameters, **broken}, inputs).softmax(-1)
    best = deployment.network.logits(deployment.parameters, inputs).softmax(-1)
    risks = [risk(deployment, one, prior) for one in (best, ensemble, undecided, worst)]
    assert risks == sorted(risks)
    assert risks[1] < risks[0] + 0.1 * (risks[2] - risks[0])


def test_the_bank_takes_over_when_the_tuned_models_are_worse(scenario_factory):
    scenario = scenario_factory(num_clients=2, num_timesteps=6)
    deployment, method = scenario.deployment, FedPoe(rate=RATE, steps=0, weight_rate=0.5)
    broken = {name: value.flip(0) for name, value in method.begin_server(deployment).items()}
    client = begin(method, deployment)._replace(local=broken)
    _, plans = observe_for(method, scenario, client, broken, 6)
    assert plans[-1]["weight_bank"] > 0.95


def test_a_snapshot_enters_with_the_weight_that_its_loss_on_all_the_past_earns(scenario_factory):
    scenario = scenario_factory(num_clients=2, num_timesteps=6)
    deployment, method = scenario.deployment, FedPoe(rate=RATE, models=4, period=3)
    shared = {name: value * 1.1 for name, value in method.begin_server(deployment).items()}
    client, plans = observe_for(method, scenario, begin(method, deployment), shared, 3)
    assert client.bank_weights.isfinite().tolist() == [True, True]
    assert_close(take(client.bank, 1), shared)
    assert_close(take(client.bank, 0), method.begin_server(deployment))
    probabilities = deployment.network.logits({**deployment.parameters, **shared}, deployment.reference.inputs)
    past = sum(risk(deployment, probabilities.softmax(-1), plan["prior"]) for plan in plans)
    torch.testing.assert_close(client.bank_weights[1], torch.tensor(-0.1 * past), atol=1e-4, rtol=1e-4)

    later, _ = observe_for(method, scenario, begin(method, deployment), shared, 6)
    assert_close(take(later.bank, 0), shared)  # the oldest made room


def test_only_the_last_layer_travels_and_every_client_steps_its_own(scenario_factory):
    scenario = scenario_factory(num_clients=3)
    deployment, method = scenario.deployment, FedPoe(rate=RATE)
    shared, client = method.begin_server(deployment), begin(method, deployment)
    assert set(shared) == {"head.weight", "head.bias"}
    seen = unlabelled(first_batches(scenario))
    moved, _ = vmap(lambda looked: observe(method, deployment, client, shared, looked))(seen)
    assert not torch.equal(moved.local["head.weight"][0], moved.local["head.weight"][1])


def test_the_original_learns_from_labels_and_says_so(scenario_factory):
    scenario = scenario_factory(num_clients=2, num_timesteps=4)
    method = FedPoe(rate=RATE, labels="oracle")
    assert method.card.oracle
    assert not FedPoe().card.oracle
    shared, client = method.begin_server(scenario.deployment), begin(method, scenario.deployment)
    seen = of_client(first_batches(scenario), 0)
    renamed = seen._replace(labels=(seen.labels + 1) % 10)
    honest, misled = (observe(method, scenario.deployment, client, shared, one)[0] for one in (seen, renamed))
    assert not torch.equal(honest.local["head.weight"], misled.local["head.weight"])
