import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from fedade.maths.losses import class_weights, estimated_risk

from ..samples import QUICK, generator, labels, seeds, softmax_batch

K = 6


def reference_set(seed: int, *shape: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = 3 * torch.randn(*shape, K, generator=generator(seed))
    return logits, labels(seed, *shape, num_classes=K), softmax_batch(seed, *shape[:-1], K)


@QUICK
@given(seed=seeds, n=st.integers(1, 30))
def test_the_weighted_mean_is_the_prior_times_the_class_wise_risks(seed, n):
    logits, targets, prior = reference_set(seed, n)
    by_sample = estimated_risk(logits, targets, class_weights(prior, targets))
    present = targets.unique()
    by_class = sum(prior[one] * cross_entropy(logits[targets == one], targets[targets == one]) for one in present)
    assert torch.allclose(by_sample, by_class, rtol=1e-4, atol=1e-5)


@QUICK
@given(seed=seeds, n=st.integers(1, 30))
def test_the_observed_prior_gives_the_ordinary_loss(seed, n):
    logits, targets, _ = reference_set(seed, n)
    observed = torch.bincount(targets, minlength=K) / n
    risk = estimated_risk(logits, targets, class_weights(observed, targets))
    assert torch.allclose(risk, cross_entropy(logits, targets), rtol=1e-4, atol=1e-5)


def test_a_class_without_samples_contributes_nothing():
    logits, targets = torch.randn(4, K, generator=generator(0)), torch.tensor([0, 0, 1, 1])
    all_on_absent = torch.nn.functional.one_hot(torch.tensor(5), K).float()
    assert estimated_risk(logits, targets, class_weights(all_on_absent, targets)) == 0


def test_clients_may_be_an_axis_or_mapped_and_differentiated():
    logits, targets, prior = reference_set(3, 4, 20)
    sample_weights = class_weights(prior, targets)
    assert torch.allclose(vmap(class_weights)(prior, targets), sample_weights)
    assert torch.allclose(
        vmap(estimated_risk)(logits, targets, sample_weights), estimated_risk(logits, targets, sample_weights)
    )
    mapped = vmap(grad(estimated_risk))(logits, targets, sample_weights)
    for client in range(4):
        alone = logits[client].clone().requires_grad_()
        loss = (sample_weights[client] * cross_entropy(alone, targets[client], reduction="none")).mean()
        (expected,) = torch.autograd.grad(loss, alone)
        assert torch.allclose(mapped[client], expected, atol=1e-6)
