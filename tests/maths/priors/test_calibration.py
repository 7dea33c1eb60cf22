import pytest
import torch
from hypothesis import given
from torch.func import vmap
from torch.nn.functional import cross_entropy

from fedade.maths.priors.reweighting import apply_temperature, fit_temperature

from ..samples import QUICK, generator, labels, seeds


def labelled_logits(seed: int, scale: float, n: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels drawn from the softmax of logits that are then multiplied by `scale`."""
    logits = 2 * torch.randn(n, 5, generator=generator(seed))
    drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator(seed + 1)).squeeze(-1)
    return scale * logits, drawn


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_an_overconfident_model_is_cooled_by_what_it_was_heated(scale):
    assert fit_temperature(*labelled_logits(0, scale)).item() == pytest.approx(scale, rel=0.15)


@QUICK
@given(seed=seeds)
def test_no_other_temperature_fits_better(seed):
    logits, targets = labelled_logits(seed, 3.0, n=60)
    best = cross_entropy(apply_temperature(logits, fit_temperature(logits, targets)), targets)
    for other in torch.logspace(-1.3, 1.3, 15):
        assert best <= cross_entropy(apply_temperature(logits, other), targets) + 1e-6


def test_bounds_hold_where_the_likelihood_has_no_minimum():
    logits = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    assert fit_temperature(logits, torch.tensor([0, 1])).item() == pytest.approx(0.05)
    assert fit_temperature(logits, torch.tensor([1, 0])).item() == pytest.approx(20.0)


def test_constant_logits_need_no_temperature():
    assert fit_temperature(torch.full((3, 4), 0.1), torch.tensor([0, 1, 2])) == 1


def test_huge_logits_have_a_finite_temperature():
    logits = 1e37 * torch.randn(10, 3, generator=generator(0))
    assert torch.isfinite(fit_temperature(logits, labels(0, 10, num_classes=3)))


def test_vmap_equals_one_after_the_other():
    logits = torch.randn(3, 40, 5, generator=generator(2))
    targets = labels(2, 3, 40, num_classes=5)
    singly = torch.stack([fit_temperature(*pair) for pair in zip(logits, targets, strict=True)])
    assert torch.allclose(vmap(fit_temperature)(logits, targets), singly)
