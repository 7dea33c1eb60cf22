"""What every shift measure promises, on batches of a classifier that is 70 % sure."""

from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from fedade.core import tree
from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.network import Network
from fedade.core.split import Split
from fedade.maths import counter
from fedade.maths.signals.dynamics import mean_feature
from fedade.parts.channels import KEPT, SLOTS, Debiased
from fedade.parts.measures import MEASURES, MeasureName, choose_measure

K, D, SAMPLES, CLIENTS = 10, 16, 50, 64
UNIFORM = torch.full((K,), 1 / K)
SKEWED = torch.tensor([0.5, 0.3, 0.2] + [0.0] * (K - 3))
each = pytest.mark.parametrize("name", MEASURES)


def key(number: int) -> Tensor:
    return torch.tensor(number)


CENTRES = counter.normal(key(0), (K, D)).abs()


def batch(prior: Tensor, seed: Tensor, samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
    """Probabilities and features of labels drawn from a prior; one client's, and fit for vmap."""
    drawn = counter.uniform(seed, (samples,), 10)
    labels = (drawn[:, None] > prior.cumsum(0)[:-1]).sum(1)
    probabilities = torch.where(labels[:, None] == torch.arange(K), 0.7, 0.3 / (K - 1))
    return probabilities, CENTRES[labels] + 0.1 * counter.normal(seed, (samples, D), 20)


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    """The network hands its inputs on as features."""
    network = Network("toy", nn.Identity(), nn.Linear(D, K))
    _, inputs = batch(UNIFORM, key(1), 100)
    return Deployment(
        network=network,
        split=Split(personal=("head.",)),
        parameters={**network.initial_parameters(), "head.weight": CENTRES.clone()},
        reference=Reference(inputs, torch.zeros(100, dtype=torch.long)),
        confusion=torch.eye(K),
        source_prior=UNIFORM,
        mean_prediction=UNIFORM,
        initial_feature=mean_feature(inputs),
        temperature=torch.ones(()),
        accuracy=torch.ones(()),
    )


def follow(measure, deployment, priors, clients=CLIENTS):
    """Mean S_unc and S_rep of many clients, per timestep."""
    state = tree.repeat(measure.init(deployment), clients)
    found = []
    for timestep, prior in enumerate(priors):
        seeds = torch.arange(clients) + 10_000 * (timestep + 1)

        def step(one, seed, prior=prior):
            return measure.update(deployment, one, *batch(prior, seed), seed)

        state, signals = vmap(step)(state, seeds)
        found.append(torch.stack([signals.unc, signals.rep]).mean(1))
    return torch.stack(found)


STILL = [UNIFORM] * 8
SWITCHING = [UNIFORM, UNIFORM, SKEWED, SKEWED, UNIFORM, UNIFORM, SKEWED, SKEWED]


def test_every_name_is_registered():
    assert set(MEASURES) == set(get_args(MeasureName))


@each
def test_a_changing_world_scores_higher_than_a_still_one_on_both_channels(name, deployment):
    still, switching = (follow(MEASURES[name], deployment, priors)[1:] for priors in (STILL, SWITCHING))
    assert (switching.mean(0) > still.mean(0)).all()
    at_a_change, between = switching[[1, 3, 5]].mean(0), switching[[0, 2, 4, 6]].mean(0)
    assert (at_a_change > between).all()


@each
def test_taking_the_noise_floor_off_lowers_it_and_keeps_the_order(name, deployment):
    raw = follow(MEASURES[name], deployment, STILL)[1:].mean(0)
    corrected = choose_measure(name, "paired", debiased=True)
    still, switching = (follow(corrected, deployment, priors)[1:].mean(0) for priors in (STILL, SWITCHING))
    # A change point has hardly any noise floor to begin with.
    assert (still < 0.6 * raw + 1e-3).all()
    assert (still < switching).all()


def test_the_raw_signal_of_the_paper_mistakes_noise_for_drift_and_the_corrected_one_does_not(deployment):
    """At n = 50 and K = 10, no shift at all scores higher than a slow one."""
    steps = [(1 - weight) * UNIFORM + weight * SKEWED for weight in torch.linspace(0, 1, 21)]
    unc = {
        (debiased, kind): follow(choose_measure("cosine", "paired", debiased), deployment, priors)[1:, 0].mean()
        for debiased in (False, True)
        for kind, priors in (("none", [UNIFORM] * 20), ("lin", steps), ("squ", SWITCHING))
    }
    assert unc[False, "lin"] < unc[False, "none"] < unc[False, "squ"]
    assert unc[True, "none"] < 0.3 * unc[False, "none"]
    assert unc[True, "none"] < 0.2 * unc[True, "squ"]


@each
@pytest.mark.parametrize("debiased", [False, True])
@pytest.mark.parametrize("samples", [1, 2, 5, KEPT, 50])
def test_signals_are_finite_and_in_bounds_for_batches_of_any_size_and_no_feature(name, debiased, samples, deployment):
    measure = choose_measure(name, "paired", debiased)
    state = measure.init(deployment)
    shapes = [leaf.shape for leaf in tree.leaves(state)]
    probabilities, features = batch(SKEWED, key(5), samples)
    one_class = torch.eye(K)[0].expand(samples, -1)
    for rows in ((probabilities, features), (one_class, torch.zeros(samples, D)), (one_class, features)):
        state, signals = measure.update(deployment, state, *rows, key(7))
        assert all(0 <= signal <= 1 for signal in signals)
        assert all(torch.isfinite(leaf).all() for leaf in tree.leaves(state))
    assert [leaf.shape for leaf in tree.leaves(state)] == shapes, "what is remembered does not grow"


@pytest.mark.parametrize("name", [name for name in MEASURES if name != "bocpd"])
def test_the_same_batch_again_is_no_change(name, deployment):
    measure = MEASURES[name]
    rows = batch(UNIFORM, key(3), KEPT)
    state, _ = measure.update(deployment, measure.init(deployment), *rows, key(4))
    _, signals = measure.update(deployment, state, *rows, key(5))
    assert all(signal == 0 for signal in signals)


def floats(measure, deployment) -> int:
    return sum(leaf.numel() for leaf in tree.leaves(measure.init(deployment)))


def test_memory_is_what_the_measure_says(deployment):
    assert floats(MEASURES["cosine"], deployment) == K + D
    assert floats(MEASURES["kl"], deployment) == K + KEPT * D
    assert floats(MEASURES["bocpd"], deployment) == SLOTS * (K + 1) + SLOTS * (2 + 2 * 8) + 8
    for name in MEASURES:
        extra = floats(choose_measure(name, "paired", True), deployment) - floats(MEASURES[name], deployment)
        assert extra == 2, "one noise floor per channel"


def test_the_paper_s_feature_channel_can_be_kept(deployment):
    kept = choose_measure("kl", "cosine", debiased=False)
    assert kept.prediction == MEASURES["kl"].prediction
    assert kept.feature == MEASURES["cosine"].feature
    assert isinstance(choose_measure("kl", "cosine", debiased=True).feature, Debiased)


def test_transport_between_classes_needs_rows_of_a_classifier(deployment):
    from dataclasses import replace

    with pytest.raises(FedadeError, match="linear last layer"):
        MEASURES["wasserstein"].init(replace(deployment, parameters={}))
