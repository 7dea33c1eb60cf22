import torch
from hypothesis import given
from torch.func import grad

from fedade.methods.fed_ccfa.clusters import alignment_loss

from ...maths.samples import QUICK, generator, seeds


def test_features_near_their_anchor_lose_little_and_steps_bring_them_nearer():
    anchors, known = torch.eye(3), torch.ones(3, dtype=torch.bool)
    labels, trust = torch.tensor([0, 1]), torch.ones(2)
    near, far = torch.tensor([[2.0, 0.1, 0.0], [0.0, 5.0, 0.2]]), torch.tensor([[0.1, 1.0, 0.0], [1.0, 0.1, 0.0]])
    assert alignment_loss(near, labels, trust, anchors, known, 0.1) < 0.01
    before = alignment_loss(far, labels, trust, anchors, known, 0.1)
    moved = far - 0.1 * grad(alignment_loss)(far, labels, trust, anchors, known, 0.1)
    assert alignment_loss(moved, labels, trust, anchors, known, 0.1) < before


@QUICK
@given(seed=seeds)
def test_unknown_anchors_have_no_say(seed):
    features = torch.randn(6, 4, generator=generator(seed))
    anchors, others = torch.randn(2, 5, 4, generator=generator(seed + 1))
    known = torch.tensor([True, False, True, False, True])
    replaced = torch.where(known.unsqueeze(-1), anchors, others)
    labels, trust = torch.arange(6) % 5, torch.ones(6)
    first, second = (alignment_loss(features, labels, trust, one, known, 0.1) for one in (anchors, replaced))
    assert torch.allclose(first, second)


def test_zero_features_and_no_anchors_have_finite_gradients():
    features, anchors, labels = torch.zeros(3, 4), torch.zeros(5, 4), torch.tensor([0, 1, 4])
    for known in (torch.zeros(5, dtype=torch.bool), torch.ones(5, dtype=torch.bool)):
        gradient = grad(alignment_loss)(features, labels, torch.ones(3), anchors, known, 0.1)
        assert gradient.isfinite().all()
