import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedade.maths.losses import entropy
from fedade.maths.priors.reweighting import reweight
from fedade.parts.objectives import OBJECTIVES, Material
from fedade.parts.optimisers import WHOLE

distributions = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda p: torch.tensor(p).double() / sum(p))
some_logits = st.lists(st.floats(-5, 5), min_size=12, max_size=12).map(lambda z: torch.tensor(z).double().reshape(3, 4))


def loss(name, logits, prior, source_prior):
    material = Material(lambda _, rows: logits[rows], torch.arange(4), prior, source_prior)
    return OBJECTIVES[name].loss(material, WHOLE)


@settings(max_examples=50, deadline=None)
@given(some_logits, distributions, distributions)
def test_posterior_entropy_is_the_entropy_of_predictions_corrected_by_the_prior(logits, prior, source_prior):
    corrected = reweight(logits.softmax(-1), prior, source_prior)
    torch.testing.assert_close(
        loss("posterior-entropy", logits, prior, source_prior), entropy(corrected).mean(), atol=1e-6, rtol=1e-6
    )


@settings(max_examples=50, deadline=None)
@given(some_logits, distributions)
def test_without_label_shift_posterior_entropy_is_entropy(logits, prior):
    torch.testing.assert_close(
        loss("posterior-entropy", logits, prior, prior), loss("entropy", logits, prior, prior), atol=1e-9, rtol=1e-9
    )


def test_a_class_that_the_prior_excludes_leaves_the_loss_finite():
    prior, source_prior = torch.tensor([1.0, 0, 0, 0]), torch.full((4,), 0.25)
    logits = torch.zeros(3, 4, requires_grad=True)
    value = loss("posterior-entropy", logits, prior, source_prior)
    value.backward()
    assert 0 <= float(value.detach()) < 1e-6
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
