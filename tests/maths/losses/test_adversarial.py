import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad
from torch.nn.functional import binary_cross_entropy_with_logits

from fedade.maths.losses.adversarial import domain_loss, gradient_reversal, reversal_strength

from ..samples import QUICK, unit_interval, vectors


@QUICK
@given(values=vectors(), strength=unit_interval)
def test_reversal_keeps_values_and_turns_the_gradient(values, strength):
    factor = torch.tensor(strength)
    assert torch.allclose(gradient_reversal(values, factor), values, rtol=1e-5)
    slope = grad(lambda x: gradient_reversal(x, factor).sum())(values)
    assert torch.allclose(slope, -factor.expand(5))


@QUICK
@given(step=st.floats(0, 1e6))
def test_strength_grows_from_0_to_1(step):
    assert reversal_strength(torch.tensor(0.0)) == 0
    assert 0 <= reversal_strength(torch.tensor(step)) <= 1
    assert reversal_strength(torch.tensor(step)) <= reversal_strength(torch.tensor(2 * step))
    assert reversal_strength(torch.tensor(1e6)) == 1


@QUICK
@given(source=vectors(), target=vectors(size=3))
def test_the_loss_is_the_cross_entropy_of_each_domain(source, target):
    each = (
        binary_cross_entropy_with_logits(source, torch.ones(5))
        + binary_cross_entropy_with_logits(target, torch.zeros(3))
    ) / 2
    assert torch.allclose(domain_loss(source, target), each, rtol=1e-4)
    assert torch.allclose(domain_loss(source, target, torch.ones(5), torch.ones(3)), each, rtol=1e-4)


def test_a_sample_without_weight_has_no_gradient():
    weights = torch.tensor([1.0, 0.0])
    slope = grad(lambda target: domain_loss(torch.zeros(2), target, None, weights))(torch.zeros(2))
    assert slope[0] != 0
    assert slope[1] == 0
