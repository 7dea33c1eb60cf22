import torch

from fedade.maths.priors.simplex import mix_with_uniform
from fedade.methods.prior_reweighting import PriorReweighting
from fedade.parts.priors import batch_prior, deployed_probabilities

from ..helpers import Seen, begin, context, observe, predict

ONE = torch.ones((), dtype=torch.int64)


def batch_of(deployment, *classes: int) -> torch.Tensor:
    """Reference inputs of some classes."""
    labels = deployment.reference.labels
    return deployment.reference.inputs[torch.isin(labels, torch.tensor(classes))]


def test_the_posterior_is_bayes_rule_with_the_batchs_own_prior(scenario_factory):
    deployment = scenario_factory().deployment
    method, inputs = PriorReweighting(), batch_of(deployment, 3, 4)
    client, plan = observe(method, deployment, begin(method, deployment), (), Seen(inputs, ONE, ONE))
    expected = mix_with_uniform(batch_prior(context(deployment, inputs), "simplex_ls"), method.uniform_share)
    assert torch.equal(plan["prior"], expected)
    product = deployed_probabilities(context(deployment, inputs)) * expected / deployment.source_prior
    assert torch.allclose(
        predict(method, deployment, client, (), inputs), product / product.sum(-1, keepdim=True), atol=1e-6
    )


def test_the_last_batch_is_forgotten(scenario_factory):
    deployment = scenario_factory().deployment
    method, now = PriorReweighting(prior="mlls"), Seen(batch_of(deployment, 3), ONE, ONE)
    before, _ = observe(method, deployment, begin(method, deployment), (), Seen(batch_of(deployment, 8), ONE, ONE))
    fresh, _ = observe(method, deployment, begin(method, deployment), (), now)
    assert torch.equal(observe(method, deployment, before, (), now)[0], fresh)
    assert fresh.argmax() == 3


def test_no_class_is_ruled_out(scenario_factory):
    deployment = scenario_factory().deployment
    method = PriorReweighting(prior="mlls")
    single = Seen(batch_of(deployment, 5), ONE, ONE)
    client, _ = observe(method, deployment, begin(method, deployment), (), single)
    assert client.min() >= 0.99e-3 / deployment.num_classes
