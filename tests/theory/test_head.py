import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from fedade.theory.equations.logistic_head import GAP, PENALTY, fit_logistic_head, head_probabilities

from ..maths.samples import generator

FEATURES = torch.randn(120, 6, generator=generator(0)) + 2 * torch.eye(3, 6).repeat(40, 1)
LABELS = torch.arange(120) % 3
PRIOR = torch.tensor([0.7, 0.3, 0.0])


def objective(head: torch.Tensor, prior: torch.Tensor, penalty: float = PENALTY) -> torch.Tensor:
    rows = torch.cat([FEATURES.double(), torch.ones(120, 1).double()], 1)
    weights = prior.double()[LABELS] / 40
    return (weights * cross_entropy(rows @ head.mT, LABELS, reduction="none")).sum() + penalty / 2 * head.square().sum()


def test_no_neighbour_is_better_by_more_than_the_promised_gap():
    head = fit_logistic_head(FEATURES, LABELS, PRIOR)
    smallest = objective(head, PRIOR)
    for seed in range(20):
        step = torch.randn(head.shape, generator=generator(seed), dtype=torch.float64)
        assert objective(head + 10 ** (-seed / 4) * step, PRIOR) > smallest - GAP


def test_the_gradient_proves_the_gap():
    head = fit_logistic_head(FEATURES, LABELS, PRIOR).requires_grad_()
    (gradient,) = torch.autograd.grad(objective(head, PRIOR), head)
    assert gradient.square().sum() / (2 * PENALTY) <= GAP


def test_it_is_the_textbook_fit():
    rows = torch.cat([FEATURES, torch.ones(120, 1)], 1).numpy()
    known = LogisticRegression(C=1 / (0.05 * 120), fit_intercept=False, tol=1e-10, max_iter=5000)
    known.fit(rows, LABELS.numpy())
    head = fit_logistic_head(FEATURES, LABELS, torch.full((3,), 1 / 3), penalty=0.05)
    torch.testing.assert_close(head, torch.from_numpy(known.coef_).double(), atol=2e-3, rtol=0)


def test_a_head_for_a_law_is_best_under_it():
    priors = torch.eye(3) * 0.8 + 0.2 / 3
    heads = [fit_logistic_head(FEATURES, LABELS, prior) for prior in priors]
    for own, prior in enumerate(priors):
        reached = [objective(head, prior) for head in heads]
        assert int(torch.stack(reached).argmin()) == own


def test_classes_that_do_not_occur_are_not_predicted():
    head = fit_logistic_head(FEATURES, LABELS, torch.tensor([0.5, 0.5, 0.0]))
    probabilities = head_probabilities(head, FEATURES)
    assert probabilities.sum(-1) == pytest.approx(torch.ones(120))
    assert probabilities[:, 2].mean() < 0.1
