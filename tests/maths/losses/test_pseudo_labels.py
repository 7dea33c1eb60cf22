import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedade.maths.losses import (
    balanced_sample,
    class_balanced,
    class_means,
    class_totals,
    confident_labels,
    weighted_cross_entropy,
)

from ..samples import QUICK, generator, seeds, softmax_batch


@QUICK
@given(seed=seeds, confidence=st.floats(0, 1))
def test_exactly_the_confident_are_trusted(seed, confidence):
    probabilities = softmax_batch(seed, 3, 12, 5, scale=4.0)
    labels, trust = confident_labels(probabilities, confidence)
    assert torch.equal(labels, probabilities.argmax(-1))
    assert torch.equal(trust == 1, probabilities.amax(-1) >= confidence)


@QUICK
@given(seed=seeds)
def test_every_present_class_gets_the_same_total(seed):
    labels = torch.randint(0, 5, (12,), generator=generator(seed))
    trust = torch.randint(0, 2, (12,), generator=generator(seed + 1)).float()
    totals = class_totals(labels, class_balanced(labels, trust, 5), 5)
    present = class_totals(labels, trust, 5) > 0
    assert torch.allclose(totals, present.float(), atol=1e-6)


@QUICK
@given(seed=seeds, most=st.integers(1, 6))
def test_a_balanced_sample_has_equally_many_of_each_class_that_is_trusted(seed, most):
    labels = torch.randint(0, 4, (3, 15), generator=generator(seed))
    trust = torch.randint(0, 2, (3, 15), generator=generator(seed + 1)).float()
    uniforms = torch.rand(3, 15, generator=generator(seed + 2))
    chosen = vmap(lambda *one: balanced_sample(*one, 4, most))(labels, trust, uniforms)
    assert (chosen <= trust).all()
    for available, taken in zip(class_totals(labels, trust, 4), class_totals(labels, chosen, 4), strict=True):
        present = available > 0
        if present.any():
            assert (taken[present] == min(most, int(available[present].min()))).all()
        assert (taken[~present] == 0).all()


@QUICK
@given(seed=seeds)
def test_a_sample_without_weight_does_not_count(seed):
    logits = torch.randn(8, 5, generator=generator(seed))
    labels = torch.randint(0, 5, (8,), generator=generator(seed + 1))
    weights = torch.cat([torch.ones(5), torch.zeros(3)])
    expected = torch.nn.functional.cross_entropy(logits[:5], labels[:5])
    assert torch.allclose(weighted_cross_entropy(logits, labels, weights), expected, atol=1e-6)


def test_without_any_trust_loss_and_gradient_are_zero():
    labels, weights = torch.zeros(3, dtype=torch.long), torch.zeros(3)
    logits = torch.tensor([[1e30, 0.0], [0.0, 1e4], [1.0, 2.0]])
    assert weighted_cross_entropy(logits, labels, weights) == 0
    assert (grad(weighted_cross_entropy)(logits, labels, weights) == 0).all()


@QUICK
@given(seed=seeds)
def test_prototypes_are_means_of_trusted_samples(seed):
    features = torch.randn(10, 4, generator=generator(seed))
    labels = torch.randint(0, 3, (10,), generator=generator(seed + 1))
    trust = torch.randint(0, 2, (10,), generator=generator(seed + 2)).float()
    means = class_means(features, labels, trust, 5)
    for label in range(5):
        chosen = features[(labels == label) & (trust > 0)]
        expected = chosen.mean(0) if len(chosen) else torch.zeros(4)
        assert torch.allclose(means[label], expected, atol=1e-5)
