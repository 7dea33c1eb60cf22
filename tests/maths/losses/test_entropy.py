import math

import pytest
import torch
from hypothesis import given
from torch.func import grad, vmap

from fedade.maths.losses import entropy, entropy_from_logits

from ..samples import QUICK, vectors


@QUICK
@given(logits=vectors(-30, 30))
def test_both_forms_agree_and_lie_between_certainty_and_uniform(logits):
    direct = entropy(torch.softmax(logits, -1))
    assert 0 <= direct <= math.log(5) + 1e-6
    assert torch.allclose(direct, entropy_from_logits(logits), atol=1e-5)


def test_certainty_has_no_entropy():
    assert entropy(torch.tensor([[1.0, 0.0, 0.0]])).tolist() == [0.0]


@pytest.mark.parametrize("size", [1e4, 1e30, 3e38])
def test_huge_logits_have_finite_entropy_and_gradient(size):
    logits = torch.tensor([size, -size, 0.0, 1.0])
    assert entropy_from_logits(logits) == 0
    assert torch.isfinite(grad(entropy_from_logits)(logits)).all()


def test_vmap_equals_batch():
    logits = torch.arange(12.0).reshape(3, 4).sin()
    assert torch.allclose(vmap(entropy_from_logits)(logits), entropy_from_logits(logits))
    assert torch.allclose(vmap(entropy)(logits.softmax(-1)), entropy(logits.softmax(-1)))
