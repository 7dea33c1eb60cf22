"""What only a simulator knows: fresh draws, best heads, models in states, gradients and curvatures."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedade.core import tree
from fedade.maths.signals.dynamics import mean_feature
from fedade.methods import METHODS
from fedade.theory.equations.logistic_head import head_probabilities
from fedade.theory.landscape import Curvature, Landscape, client_models
from fedade.theory.oracle import TheorySettings, losses, oracle_of

from ..helpers import clock
from .theories import SCENARIO


@pytest.mark.parametrize(("horizon", "wanted"), [(9, 4), (9, 9), (5, 40), (100, 7)])
def test_observed_timesteps_are_one_of_each_part_and_stand_for_all(scenario_factory, horizon, wanted):
    scenario = scenario_factory(**{**SCENARIO, "num_timesteps": horizon})
    found = oracle_of(scenario, 3, np.arange(6), TheorySettings(timesteps=wanted, clients=50))
    assert len(found.timesteps) == min(horizon, wanted)
    assert found.weights.sum() == horizon
    ends = np.cumsum(found.weights)
    assert ((found.timesteps > ends - found.weights) & (found.timesteps <= ends)).all()
    assert found.clients.tolist() == list(range(6))


def test_fresh_draws_are_large_and_apart_from_the_stream(oracle):
    batch = oracle.fresh(3)
    assert batch.labels.shape == (3, 500)
    assert not torch.equal(batch.inputs, oracle.fresh(3, "other").inputs)
    assert torch.equal(batch.inputs, oracle.fresh(3).inputs)


def test_true_features_are_the_limit_of_large_draws(oracle):
    network, parameters = oracle.deployment.network, oracle.deployment.parameters
    means = oracle.class_means(network.represent(parameters, oracle.population(oracle.views(9)[0])))
    many = oracle.settings.model_copy(update={"samples": 20_000})
    batch = oracle_of(oracle.scenario, 0, oracle.clients[:1], many).fresh(9)
    drawn = mean_feature(network.represent(parameters, batch.inputs[0]))
    torch.testing.assert_close(batch.prior[0] @ means, drawn, atol=0.01, rtol=0)


def test_the_best_head_is_better_than_the_deployed_one_on_average(oracle):
    batch = oracle.fresh(9)
    network, parameters = oracle.deployment.network, oracle.deployment.parameters
    features = network.represent(parameters, batch.inputs[0])
    head = oracle.best_head(oracle.views(9)[0], oracle.streams.prior(oracle.clients, 9)[0])
    fitted, deployed = head_probabilities(head, features), network.classify(parameters, features).softmax(-1)
    labels = batch.labels[0]
    assert losses(fitted, labels)[0].mean() < losses(deployed, labels)[0].mean()


def test_a_certain_mistake_costs_a_finite_loss():
    cross_entropy, error = losses(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert cross_entropy.item() == pytest.approx(15.9, abs=0.1)
    assert error.item() == 1


def test_models_are_found_in_states_that_show_one(scenario_factory):
    scenario = scenario_factory()
    deployment = scenario.deployment
    for name, shows in (
        ("fed-ade", True),
        ("source", True),
        ("oracle-finetune", True),
        ("tent", True),
        ("cotta", False),
    ):
        method = METHODS[name]()
        world = clock(method, scenario).beginning()
        found = client_models(deployment, tree.take(world.clients, 0), tree.take(world.server, 0))
        assert (found is not None) == shows, name
        if found is not None:
            assert torch.equal(found.distances(8), torch.zeros(8))


def test_who_moves_a_model_is_seen_to_move(scenario_factory):
    models = client_models(scenario_factory().deployment, {"head.bias": torch.ones(2, 10)}, ())
    bias = models.deployment.parameters["head.bias"]
    torch.testing.assert_close(models.distances(2), (1 - bias).norm().expand(2))


def test_block_norms_of_a_known_hessian_are_found():
    matrix = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    hessian = matrix @ matrix.mT

    def loss(point: dict[str, torch.Tensor]) -> torch.Tensor:
        whole = torch.cat([point["body.a"].flatten(), point["head.b"]])
        return whole @ hessian @ whole / 2

    curvature = Curvature(loss, {"body.a": torch.ones(1, 2), "head.b": torch.ones(3)})
    for rows, columns, block in (
        (["body.a"], ["body.a"], hessian[:2, :2]),
        (["head.b"], ["head.b"], hessian[2:, 2:]),
        (["body.a"], ["head.b"], hessian[:2, 2:]),
    ):
        assert curvature.block_norm(rows, columns) == pytest.approx(float(torch.linalg.matrix_norm(block, 2)), rel=0.03)


def test_equal_clients_have_equal_gradients(oracle):
    batch = oracle.fresh(9)
    alike = type(batch)(*(part[:1].expand(2, *part.shape[1:]) for part in batch.tensors))
    models = client_models(oracle.deployment, (), {})
    same, different = Landscape(models, alike), Landscape(models, batch)
    assert same.slopes().spread == pytest.approx(0, abs=1e-8)
    assert different.slopes().spread > 0.01
    assert same.steepness().gradient_norm ** 2 >= same.slopes().shared


def test_slopes_and_variances_are_those_of_autograd(oracle):
    batch, deployment = oracle.fresh(9), oracle.deployment
    land = Landscape(client_models(deployment, (), {}), batch)
    names = sorted(deployment.network.trainable())
    parameters = {name: value.clone().requires_grad_(name in names) for name, value in deployment.parameters.items()}

    def gradient(client, samples):
        logits = deployment.network.logits(parameters, batch.inputs[client, samples])
        loss = cross_entropy(logits, batch.labels[client, samples])
        by_name = dict(zip(names, torch.autograd.grad(loss, [parameters[name] for name in names]), strict=True))
        return {
            part: torch.cat([by_name[name].flatten() for name in names if name.startswith(part)])
            for part in ("body.", "head.")
        }

    every = [gradient(client, slice(None)) for client in range(3)]
    mean = torch.stack([own["body."] for own in every]).mean(0)
    slopes = land.slopes()
    assert slopes.shared == pytest.approx(float(mean.square().sum()), rel=1e-4)
    assert slopes.personal == pytest.approx(
        float(torch.stack([own["head."].square().sum() for own in every]).mean()), rel=1e-4
    )
    singles = [[gradient(client, [sample]) for sample in range(64)] for client in range(3)]
    for part, variance in zip(("body.", "head."), land.steepness()[-2:], strict=True):
        stacked = torch.stack([torch.stack([own[part] for own in client]) for client in singles])
        assert variance == pytest.approx(float(stacked.var(1, correction=0).sum(-1).max()), rel=1e-3)
