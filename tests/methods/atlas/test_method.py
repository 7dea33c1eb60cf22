import math

import numpy as np
import pytest
import torch

from fedade.maths.hedging import hedge
from fedade.methods.atlas import Atlas
from fedade.methods.source import Source

from ...helpers import Rows, begin, final_world, mean, predict, run

HORIZON = 20
POOL = (1e-3, 1e-2, 5e-2, 1.0)


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(num_timesteps=HORIZON, num_clients=6)


def total_risk(rows: Rows) -> np.ndarray:
    """Sum of the estimated risks over time, per client."""
    return np.sum([step["risk"] for step in rows], axis=0)


def test_hedge_moves_to_the_step_size_that_is_best_on_its_own(scenario):
    alone = np.stack([total_risk(run(Atlas(step_sizes=(size,)), scenario)) for size in POOL])
    pooled = Atlas(step_sizes=POOL, horizon=HORIZON)
    weights = final_world(pooled, scenario).clients.log_weights.softmax(-1).numpy()
    best = alone.mean(1).argmin()
    assert weights.mean(0).argmax() == best
    assert weights.mean(0)[best] > 0.5
    regret = total_risk(run(pooled, scenario)) - alone.min(0)
    assert (regret < math.sqrt(HORIZON * math.log(len(POOL)))).all()


def test_hedge_has_little_regret_against_any_losses():
    losses = torch.rand(100, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses[:50, 0], losses[50:, 1] = 0, 0
    rate, log_weights, suffered = 2 * math.sqrt(math.log(5) / 100), torch.zeros(5, dtype=torch.float64), 0.0
    for step in losses:
        suffered += float(log_weights.softmax(-1) @ step)
        log_weights = hedge(log_weights, step, rate)
    assert suffered - float(losses.sum(0).min()) < 0.75 * math.sqrt(100 * math.log(5))


def test_uogd_is_a_pool_of_one(scenario):
    deployment = scenario.deployment
    single = Atlas(pool="single", horizon=HORIZON)
    step_size = float(begin(single, deployment).step_sizes)
    one, other = (final_world(method, scenario).clients for method in (single, Atlas(step_sizes=(step_size,))))
    assert torch.equal(one.heads["head.weight"], other.heads["head.weight"])
    assert not torch.equal(one.heads["head.weight"][:, 0], deployment.parameters["head.weight"].expand(6, -1, -1))


def test_the_estimated_risk_falls_below_that_of_the_deployed_head(scenario):
    still, moving = (total_risk(run(Atlas(step_sizes=(size,)), scenario)) for size in (0.0, 5e-2))
    assert (moving < still).all()


def test_no_head_leaves_the_ball_that_the_deployed_head_touches(scenario):
    heads = final_world(Atlas(step_sizes=(1e-2, 10.0)), scenario).clients.heads
    radius = sum(float(scenario.deployment.parameters[name].square().sum()) for name in heads) ** 0.5
    norms = sum(values.flatten(2).square().sum(-1) for values in heads.values()).sqrt()
    assert (norms <= radius * (1 + 1e-5)).all()
    assert torch.allclose(norms[:, 1], torch.tensor(radius))


@pytest.mark.parametrize("pool", ["theorem", "released", "single"])
@pytest.mark.parametrize("combine", ["weights", "outputs"])
def test_before_the_first_step_every_pool_predicts_as_the_deployed_model(scenario, pool, combine):
    deployment, inputs = scenario.deployment, scenario.deployment.reference.inputs
    method = Atlas(pool=pool, combine=combine)
    said = predict(method, deployment, begin(method, deployment), (), inputs)
    torch.testing.assert_close(said, predict(Source(), deployment, (), (), inputs))


def test_averaged_heads_and_averaged_outputs_both_help(scenario):
    unadapted = mean(run(Source(), scenario), "accuracy_post")
    for combine in ("weights", "outputs"):
        assert mean(run(Atlas(combine=combine, horizon=HORIZON), scenario), "accuracy_post") > unadapted
