import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from fedade.maths.hedging import draw_experts, hedge, hedge_drawn, mixture

from ..samples import QUICK, generator, is_distribution, seeds, softmax_batch


@QUICK
@given(seed=seeds, scale=st.floats(0, 1000))
def test_a_mixture_is_a_distribution_between_its_members(seed, scale):
    members = softmax_batch(seed, 4, 6, 5, scale=3.0)
    log_weights = scale * torch.randn(4, generator=generator(seed))
    mixed = mixture(members, log_weights)
    assert is_distribution(mixed)
    assert (mixed <= members.amax(0) + 1e-6).all()
    assert (mixed >= members.amin(0) - 1e-6).all()


def test_only_chosen_members_count():
    members = torch.eye(3).unsqueeze(1)
    mixed = mixture(members, torch.tensor([0.0, 0.0, 50.0]), torch.tensor([True, True, False]))
    assert torch.allclose(mixed, torch.tensor([[0.5, 0.5, 0.0]]))


def test_weights_gather_on_the_expert_with_the_smallest_loss():
    log_weights = torch.zeros(3)
    for _ in range(100):
        log_weights = hedge(log_weights, torch.tensor([0.9, 0.2, 0.6]), 0.5)
    assert log_weights.softmax(-1)[1] > 0.99


@QUICK
@given(seed=seeds)
def test_draws_follow_the_weights_and_never_hit_an_empty_slot(seed):
    log_weights = torch.tensor([0.0, -torch.inf, 1.0, -torch.inf])
    uniforms = torch.cat([torch.rand(400, generator=generator(seed)), torch.tensor([0.0, 1 - 2**-24])])
    hits = vmap(lambda uniform: draw_experts(log_weights, uniform[None]))(uniforms)
    assert (hits.sum(-1) == 1).all()
    assert torch.allclose(hits[:400].float().mean(0), log_weights.softmax(-1), atol=0.12)
    assert draw_experts(log_weights, uniforms).tolist() == [True, False, True, False]


def test_importance_weights_make_drawn_losses_unbiased():
    log_weights, losses = torch.tensor([1.0, 0.0, -1.0]), torch.tensor([0.3, 0.7, 0.5])
    uniforms = torch.rand(4000, 2, generator=generator(0))
    drawn = vmap(lambda pair: draw_experts(log_weights, pair))(uniforms)
    charged = vmap(lambda one: log_weights - hedge_drawn(log_weights, losses, one, 2, 1.0))(drawn)
    assert torch.allclose(charged.mean(0), losses, atol=0.06)


def test_an_empty_slot_stays_empty_and_finite_weights_finite():
    log_weights = torch.tensor([0.0, -torch.inf, -500.0])
    updated = hedge_drawn(log_weights, torch.ones(3), torch.tensor([True, False, True]), 8, 0.1)
    assert updated.isfinite().tolist() == [True, False, True]
    assert updated[1] == -torch.inf
