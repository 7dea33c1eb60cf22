import torch
from hypothesis import given
from torch.func import vmap

from fedade.maths.priors.reweighting import reweight

from ..samples import QUICK, is_distribution, seeds, softmax_batch


@QUICK
@given(seed=seeds)
def test_the_source_prior_changes_nothing_and_others_give_distributions(seed):
    probabilities, priors = softmax_batch(seed, 3, 8, 5, scale=6.0), softmax_batch(seed + 1, 3, 5, scale=6.0)
    source = softmax_batch(seed + 2, 5)
    assert torch.allclose(reweight(probabilities, source.expand(3, 5), source), probabilities, atol=1e-6)
    corrected = reweight(probabilities, priors, source)
    assert is_distribution(corrected)
    assert torch.allclose(corrected, vmap(reweight, (0, 0, None))(probabilities, priors, source))


def test_bayes_rule_on_two_classes():
    corrected = reweight(torch.tensor([[0.5, 0.5]]), torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5]))
    assert torch.allclose(corrected, torch.tensor([[0.9, 0.1]]))


def test_a_row_without_any_mass_left_is_kept():
    certain = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    corrected = reweight(certain, torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
    assert corrected.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_class_missing_from_the_source_stays_finite():
    source = torch.tensor([1.0, 0.0])
    assert is_distribution(reweight(torch.tensor([[0.7, 0.3]]), torch.tensor([0.5, 0.5]), source))
