import pytest
import torch
from torch.func import vmap

from fedade.maths.signals.change_points import first_class_run, first_feature_run, follow_classes, follow_features

from ..samples import generator, softmax_batch

HAZARD, SAMPLES, SLOTS = 0.1, 50, 64


def class_scores(priors, seed, slots=SLOTS):
    """P(new segment) at every timestep, for counts of 50 samples of a 70 %-confident classifier."""
    runs, scores = first_class_run(SAMPLES * priors[0], slots), []
    for prior in priors:
        labels = torch.multinomial(prior, SAMPLES, replacement=True, generator=generator(seed := seed + 1))
        sums = torch.full((10,), SAMPLES * 0.3 / 9) + torch.bincount(labels, minlength=10) * (0.7 - 0.3 / 9)
        runs, score = follow_classes(runs, sums, HAZARD)
        scores.append(score)
    return torch.stack(scores), runs


def feature_scores(means, seed, slots=SLOTS):
    runs, scores = first_feature_run(torch.zeros(8), slots), []
    noise = torch.randn(len(means), 8, generator=generator(seed))
    for value in means + noise:
        runs, score = follow_features(runs, value, 1 / SAMPLES, HAZARD)
        scores.append(score)
    return torch.stack(scores), runs


UNIFORM, SKEWED = torch.full((10,), 0.1), torch.tensor([0.55] + [0.05] * 9)


@pytest.mark.parametrize("seed", range(0, 3000, 1000))
def test_a_planted_change_of_classes_is_seen_and_stationary_batches_are_not(seed):
    stationary, _ = class_scores(UNIFORM.expand(40, -1), seed)
    assert stationary.mean() <= 0.05
    changed, _ = class_scores(torch.cat([UNIFORM.expand(20, -1), SKEWED.expand(20, -1)]), seed)
    assert changed[20] >= 0.5
    assert changed.argmax() == 20
    assert changed[21:].mean() <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_change_of_features_is_seen_and_stationary_batches_are_not(seed):
    stationary, _ = feature_scores(torch.zeros(40, 8), seed)
    assert stationary.mean() <= 0.05
    changed, _ = feature_scores(torch.cat([torch.zeros(20, 8), torch.full((20, 8), 5.0)]), seed)
    assert changed[20] >= 0.5
    assert changed.argmax() == 20
    assert changed[21:].mean() <= 0.05


def test_the_score_grows_with_the_shift():
    _, runs = class_scores(UNIFORM.expand(10, -1), 0)
    path = [(1 - weight) * UNIFORM + weight * torch.eye(10)[3] for weight in torch.linspace(0, 1, 11)]
    scores = torch.stack([follow_classes(runs, SAMPLES * prior, HAZARD)[1] for prior in path])
    assert (scores.diff() >= 0).all()
    assert scores[0] < 0.01
    assert scores[-1] > 0.99


@pytest.mark.parametrize("scores", [class_scores, feature_scores])
def test_a_run_longer_than_the_cap_stays_stationary_and_the_state_does_not_grow(scores):
    series = UNIFORM.expand(40, -1) if scores is class_scores else torch.zeros(40, 8)
    capped, runs = scores(series, 0, slots=8)
    free, _ = scores(series, 0, slots=64)
    assert all(len(part) == 8 for part in runs)
    assert runs.mass.sum().item() == pytest.approx(1, abs=1e-5)
    assert capped.mean() <= 0.05
    torch.testing.assert_close(capped, free, atol=0.05, rtol=0)


def test_the_posterior_is_that_of_summing_over_all_segmentations():
    """Three batches of two classes: the recursion against every way to cut them."""
    batches = torch.tensor([[3.0, 1.0], [2.0, 2.0], [0.0, 4.0]])
    first = torch.tensor([1.0, 1.0])

    def evidence(segment):
        """Γ(A)/Γ(A+n) Π Γ(α+k)/Γ(α) of a segment's batches, one after the other."""
        seen, total = torch.ones(2), torch.zeros(())
        for counts in segment:
            after = seen + counts
            total += (seen.sum().lgamma() - after.sum().lgamma()) + (after.lgamma() - seen.lgamma()).sum()
            seen = after
        return total

    runs = first_class_run(first, 5)
    for counts in batches:
        runs, score = follow_classes(runs, counts, HAZARD)

    joint = {}
    for cuts in range(8):
        segments, log = [[first]], torch.zeros(())
        for index, counts in enumerate(batches):
            cut = cuts >> index & 1
            log += torch.tensor(HAZARD if cut else 1 - HAZARD).log()
            segments = [*segments, [counts]] if cut else [*segments[:-1], [*segments[-1], counts]]
        joint[cuts] = log + sum(evidence(segment) for segment in segments)
    posterior = torch.stack(list(joint.values())).softmax(0)
    ends = [weight for cuts, weight in zip(joint, posterior, strict=True) if cuts >> 2 & 1]
    assert score.item() == pytest.approx(sum(ends).item(), abs=1e-5)


def test_a_student_prediction_is_the_exact_posterior_odds():
    """One batch after another in one direction, against torch's own Student's t."""
    precision, value = 0.02, torch.tensor([1.5])
    _, score = follow_features(first_feature_run(torch.zeros(1), 4), value, precision, HAZARD)

    def density(batches):
        strength, shape = precision + batches, 1 + batches / 2
        return torch.distributions.StudentT(2 * shape, 0.0, ((strength + 1) / (shape * strength)) ** 0.5).log_prob(
            value
        )

    fresh, grown = HAZARD * density(0).exp(), (1 - HAZARD) * density(1).exp()
    assert score.item() == pytest.approx((fresh / (fresh + grown)).item(), abs=1e-5)


def test_empty_and_single_class_batches_are_no_trouble():
    runs = first_class_run(torch.ones(10), 4)
    for counts in (torch.zeros(10), torch.eye(10)[0], 1000 * torch.eye(10)[9]):
        runs, score = follow_classes(runs, counts, HAZARD)
        assert 0 <= score <= 1
        assert all(torch.isfinite(part).all() for part in runs)


def test_vmap_equals_one_at_a_time():
    counts = 20 * softmax_batch(0, 5, 10)
    runs = first_class_run(torch.ones(10), 4)
    together = vmap(lambda batch: follow_classes(runs, batch, HAZARD)[1])(counts)
    alone = torch.stack([follow_classes(runs, batch, HAZARD)[1] for batch in counts])
    torch.testing.assert_close(together, alone)
