import itertools

import jaxtyping
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from fedade.core.errors import FedadeError
from fedade.maths.priors import estimators as priors
from fedade.maths.priors.estimators import (
    ESTIMATORS,
    ConfusionFactors,
    confusion_matrix,
    estimate_prior,
    is_invertible,
    simplex_least_squares,
)
from fedade.maths.priors.simplex import project_to_simplex

from ..samples import QUICK, generator, is_distribution, labels, seeds, softmax_batch

K = 10
UNIFORM = torch.full((K,), 1 / K)

BLACK_BOX = {
    "simplex_ls": simplex_least_squares,
    "inv": priors.inverse,
    "pinv_simplex": priors.pseudo_inverse_simplex,
    "ridge_clip": priors.ridge_clip,
    "rlls": lambda factors, predicted: priors.rlls(factors, predicted, 4000),
}


def dirichlet(seed: int, *shape: int, concentration: float = 0.1) -> Tensor:
    """Gamma variates from their log-uniform small-shape approximation are enough for peaked priors."""
    draws = torch.rand(*shape, generator=generator(seed)).clamp_min(1e-6) ** (1 / concentration)
    return (draws + 1e-12) / (draws + 1e-12).sum(-1, keepdim=True)


def diagonal_confusion(seed: int, accuracy: float, num_classes: int = K) -> Tensor:
    errors = dirichlet(seed, num_classes, num_classes, concentration=0.5).mT
    return accuracy * torch.eye(num_classes) + (1 - accuracy) * errors


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("inv", 1e-4), ("ridge_clip", 1e-3), ("pinv_simplex", 5e-3), ("simplex_ls", 1e-2), ("rlls", 1e-2)],
)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_a_known_prior_is_recovered_from_exact_predictions(name, tolerance, seed):
    confusion, truth = diagonal_confusion(seed, accuracy=0.8), dirichlet(seed + 1, 4, K)
    estimated = BLACK_BOX[name](ConfusionFactors(confusion, UNIFORM), truth @ confusion.mT)
    assert (estimated - truth).abs().sum(-1).max() < tolerance


@pytest.mark.parametrize(("margin", "recovered"), [(0.02, 0.999), (0.002, 0.5)])
def test_the_pseudo_inverse_drops_directions_below_one_hundredth(margin, recovered):
    confusion = 0.5 + margin * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    estimated = priors.pseudo_inverse_simplex(ConfusionFactors(confusion, torch.tensor([0.5, 0.5])), confusion[:, 0])
    assert estimated[0].item() == pytest.approx(recovered, abs=1e-3)


@pytest.mark.parametrize("name", BLACK_BOX)
def test_a_name_stands_for_its_estimator(name):
    batch, confusion = softmax_batch(3, 2, 5, K), awkward_confusions()["nearly twins"]
    named = estimate_prior(batch, confusion, UNIFORM, name, UNIFORM, 4000)
    factors = ConfusionFactors(confusion, UNIFORM)
    meant = {other: function(factors, batch.mean(-2)) for other, function in BLACK_BOX.items()}
    assert [other for other, value in meant.items() if torch.equal(value, named)] == [name]


def test_the_simplex_solution_recovers_a_hundred_classes():
    confusion, truth = diagonal_confusion(0, accuracy=0.7, num_classes=100), dirichlet(1, 5, 100)
    estimated = simplex_least_squares(ConfusionFactors(confusion, torch.full((100,), 0.01)), truth @ confusion.mT)
    assert (estimated - truth).abs().sum(-1).max() < 1e-2


@QUICK
@given(seed=seeds, num_classes=st.sampled_from([10, 30]), accuracy=st.sampled_from([0.1, 0.5, 0.8]))
def test_the_simplex_solution_is_optimal(seed, num_classes, accuracy):
    confusion = diagonal_confusion(seed, accuracy, num_classes).double()
    predicted = dirichlet(seed + 1, 6, num_classes).double()
    source = dirichlet(seed + 2, num_classes).double()
    solution = simplex_least_squares(ConfusionFactors(confusion, source), predicted)
    gradient = (solution @ confusion.mT - predicted) @ confusion + 1e-3 * (solution - source)
    # A minimum over a convex set is a fixed point of every projected gradient step.
    assert (project_to_simplex(solution - gradient) - solution).abs().max() < 1e-5


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
@example(seed=250490)  # one class alone, at 1.53 times what the ratios of a distribution can be
def test_rlls_is_optimal(seed):
    joint = diagonal_confusion(seed, accuracy=0.6).double() / K
    predicted = dirichlet(seed + 1, 1, K).double()
    source = UNIFORM.double()
    strength = priors._rlls_strength(K, 1000)

    def objective(ratios: Tensor) -> Tensor:
        return (ratios @ joint.mT - predicted).norm(dim=-1) + strength * (ratios - 1).norm(dim=-1)

    shape = priors.rlls(ConfusionFactors(joint * K, source), predicted, 1000) * K
    # The estimate is normalised: the best multiple of it is the solution itself.
    solution = shape * torch.linspace(0.5, 4, 7001, dtype=torch.float64).unsqueeze(-1)
    best = solution[objective(solution).argmin()]
    nearby = (best + 1e-2 * torch.randn(300, K, generator=generator(seed)).double()).clamp_min(0)
    assert objective(best.unsqueeze(0)).item() <= objective(nearby).min().item() + 1e-7


def awkward_confusions() -> dict[str, Tensor]:
    good = diagonal_confusion(0, accuracy=0.7)
    empty, twins, nearly_twins = good.clone(), good.clone(), good.clone()
    empty[:, 3] = 0
    twins[:, 1] = twins[:, 0]
    nearly_twins[:, 1] = 0.9999 * nearly_twins[:, 0] + 0.0001 * nearly_twins[:, 1]
    return {
        "good": good,
        "empty column": empty,
        "twin classes": twins,
        "nearly twins": nearly_twins,
        "blind": torch.full((K, K), 1 / K),
        "one answer": torch.eye(K)[:1].mT.expand(K, K).clone(),
        "zero": torch.zeros(K, K),
        "identity": torch.eye(K),
    }


AWKWARD_SOURCES = {
    "uniform": UNIFORM,
    "missing class": (1 - torch.eye(K)[3]) / (K - 1),
    "single": torch.eye(K)[0],
}
AWKWARD_BATCHES = {
    "ordinary, certain, always the missing class": torch.stack(
        [softmax_batch(0, 5, K), torch.eye(K)[labels(0, 5, num_classes=K)], torch.eye(K)[3].expand(5, K)]
    ),
    "one sample of one client": softmax_batch(1, 1, K),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimate_is_a_distribution_whatever_it_is_given(name):
    cases = list(itertools.product(awkward_confusions().items(), AWKWARD_SOURCES.items(), AWKWARD_BATCHES.items()))
    assert len(cases) == 8 * 3 * 2
    for (matrix, confusion), (law, source), (kind, batch) in cases:
        estimated = estimate_prior(batch, confusion, source, name, source, num_reference=50)
        assert estimated.shape == (*batch.shape[:-2], K)
        assert estimated.dtype == batch.dtype
        assert is_distribution(estimated), (matrix, law, kind)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_vmap_equals_batch(name):
    batches, confusion = softmax_batch(0, 4, 12, K), diagonal_confusion(1, accuracy=0.7)

    def one_client(batch: Tensor) -> Tensor:
        return estimate_prior(batch, confusion, UNIFORM, name, UNIFORM, num_reference=1000)

    assert torch.allclose(vmap(one_client)(batches), one_client(batches), atol=1e-5)
    assert torch.allclose(one_client(batches[2]), one_client(batches)[2], atol=1e-5)


def gaussian_classes(laws: Tensor, seed: int, n: int, twins: bool) -> tuple[Tensor, Tensor]:
    """Posteriors (uniform prior) and labels of n points per law, from ten Gaussian blobs; twins overlap."""
    centres = 2 * torch.randn(K, 6, generator=generator(99))
    if twins:
        centres[1] = centres[0] + 0.05
    drawn = torch.multinomial(laws, n, replacement=True, generator=generator(seed))
    points = centres[drawn] + torch.randn(*drawn.shape, 6, generator=generator(seed + 1))
    return torch.softmax(-torch.cdist(points, centres).square() / 2, -1), drawn


def mean_errors(twins: bool) -> dict[str, float]:
    """Mean L1 error of every estimator over 60 batches of 50 samples, after 4000 reference samples."""
    (outputs,), (reference_labels,) = gaussian_classes(UNIFORM.expand(1, K), 0, 4000, twins)
    confusion, truth = confusion_matrix(outputs, reference_labels), dirichlet(5, 60, K)
    batches, _ = gaussian_classes(truth, 10, 50, twins)
    estimates = {name: estimate_prior(batches, confusion, UNIFORM, name, outputs.mean(0), 4000) for name in ESTIMATORS}
    estimates["literal"] = priors.literal_inverse(ConfusionFactors(confusion, UNIFORM), batches.mean(-2))
    return {name: (estimated - truth).abs().sum(-1).mean().item() for name, estimated in estimates.items()}


def test_constraints_help_even_where_the_inverse_is_safe():
    errors = mean_errors(twins=False)
    assert max(errors["simplex_ls"], errors["rlls"], errors["mlls"]) < errors["literal"]


def test_the_inverse_explodes_when_two_classes_look_alike_and_the_default_does_not():
    errors = mean_errors(twins=True)
    assert errors["literal"] > 3 * errors["simplex_ls"]
    assert max(errors["simplex_ls"], errors["rlls"], errors["mlls"]) < errors["inv"]


def likeliest(batch: Tensor, source: Tensor, iterations: int = 100) -> Tensor:
    return priors.posterior_mode(batch, source, torch.zeros_like(source), iterations)


@QUICK
@given(seed=seeds)
def test_expectation_maximisation_infers_no_shift_when_there_is_none(seed):
    batch = softmax_batch(seed, 30, K)
    assert torch.allclose(likeliest(batch, batch.mean(0)), batch.mean(0), atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_expectation_maximisation_finds_the_most_likely_prior(seed):
    batch, source = softmax_batch(seed, 40, 4), softmax_batch(seed + 1, 4, scale=0.3)
    ratios = batch.double() / source.double()

    def log_likelihood(prior: Tensor) -> Tensor:
        return (prior.double() @ ratios.mT).log().mean(-1)

    best = log_likelihood(likeliest(batch, source, iterations=1000))
    assert best >= log_likelihood(softmax_batch(seed + 2, 300, 4)).max() - 1e-5


def test_pseudo_counts_keep_an_unseen_class_alive():
    batch = torch.eye(K)[torch.zeros(20, dtype=torch.long)]
    assert likeliest(batch, UNIFORM)[1] == 0
    prior = priors.posterior_mode(batch, UNIFORM, 5.0 * UNIFORM)
    assert prior[1].item() == pytest.approx(5 / K / 25)


@pytest.mark.parametrize("soft", [True, False])
def test_confusion_columns_are_class_wise_means(soft):
    probabilities, targets = softmax_batch(0, 60, 4), labels(0, 60, num_classes=3)
    confusion = confusion_matrix(probabilities, targets, soft)
    outputs = probabilities if soft else torch.eye(4)[probabilities.argmax(-1)]
    for true_class in range(3):
        assert torch.allclose(confusion[:, true_class], outputs[targets == true_class].mean(0), atol=1e-6)
    assert confusion[:, 3].tolist() == [0, 0, 0, 1]
    assert is_distribution(confusion.mT)


def test_unsafe_inverses_are_recognised():
    verdicts = {name: is_invertible(confusion) for name, confusion in awkward_confusions().items()}
    assert [name for name, safe in verdicts.items() if safe] == ["good", "identity"]


def test_what_is_not_a_number_stays_so_on_its_way_to_the_simplex():
    """As an index it would end a process on a GPU."""
    assert project_to_simplex(torch.full((3, 4), torch.nan)).isnan().all()


def test_the_literal_inverse_may_leave_the_simplex():
    confusion = torch.tensor([[0.9, 0.2], [0.1, 0.8]])
    raw = priors.literal_inverse(ConfusionFactors(confusion, torch.tensor([0.5, 0.5])), torch.tensor([1.0, 0.0]))
    assert raw.min() < 0
    assert torch.allclose(confusion @ raw, torch.tensor([1.0, 0.0]), atol=1e-6)


def test_an_unknown_estimator_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'bbse' is unknown; choose one of simplex_ls, inv, pinv_simplex"):
        estimate_prior(softmax_batch(0, 5, K), torch.eye(K), UNIFORM, "bbse", UNIFORM, 10)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: confusion_matrix(torch.eye(2), torch.tensor([0, 2])), "labels are not whole numbers from 0 to 1"),
        (lambda: confusion_matrix(torch.eye(2), torch.tensor([0, -1])), "labels are not whole numbers from 0 to 1"),
        (
            lambda: confusion_matrix(torch.eye(2), torch.tensor([0])),
            r"\[2, 2\] and labels \[1\] do not belong together",
        ),
        (lambda: estimate_prior(torch.eye(2), torch.eye(3), UNIFORM[:2]), r"confusion \[3, 3\],.* pass \[n, K\]"),
        (lambda: estimate_prior(torch.eye(2), torch.eye(2), UNIFORM), r"source_prior \[10\] .* do not belong together"),
        (lambda: estimate_prior(torch.eye(2)[0], torch.eye(2), UNIFORM[:2]), r"probabilities \[2\],"),
        (lambda: estimate_prior(torch.eye(2)[:0], torch.eye(2), UNIFORM[:2]), r"probabilities \[0, 2\],.* with n > 0"),
    ],
)
def test_what_does_not_belong_together_is_refused_in_one_line(call, told, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # shapes are checked in tests only
    with pytest.raises(FedadeError, match=told) as error:
        call()
    assert "\n" not in str(error.value)
