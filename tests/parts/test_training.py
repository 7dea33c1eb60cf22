import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import vmap

from fedade.maths.losses import class_weights
from fedade.parts.composition import trainable, trainable_personal
from fedade.parts.objectives import OBJECTIVES, Material, bbse
from fedade.parts.optimisers import WHOLE, Optimiser
from fedade.parts.training import Training, prior_draws

from ..helpers import context

KEY = torch.tensor(11)
MANY = 30_000


@pytest.fixture(scope="module")
def deployment(scenario_factory):
    return scenario_factory().deployment


def training(
    deployment,
    samples: int,
    draws: str,
    objective: str = "bbse",
    optimiser: Optimiser | None = None,
    batch_size: int = 8,
):
    """A descent with an uneven prior; a stream of as many samples as asked."""
    prior = torch.tensor([0.4, 0.0, 0.2, 0.1, 0.0, 0.1, 0.05, 0.05, 0.0, 0.1])
    inputs = deployment.reference.inputs[torch.arange(samples) % len(deployment.reference.labels)]
    plan = {"prior": prior, "learning_rate": torch.tensor(0.01)}
    ctx = context(deployment, inputs, key=KEY)
    return Training(ctx, OBJECTIVES[objective], plan, batch_size, optimiser or Optimiser(), draws)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5),
    st.integers(0, 2**31),
)
def test_the_mean_loss_of_drawn_rows_is_the_estimated_risk(labels, prior, key):
    """F̂ (eq:estimated_risk), whatever the prior, and where classes lack reference samples."""
    labels, prior = torch.tensor(labels), torch.tensor(prior, dtype=torch.float64) + 1e-3
    prior = prior / prior.sum()
    logits = torch.linspace(-3, 3, len(labels) * 5, dtype=torch.float64).reshape(-1, 5).sin()

    def risk(rows, drawn):
        chosen = Material(lambda _, rows: logits[rows], labels, prior, prior, drawn)
        return bbse(chosen, rows)

    (rows,) = prior_draws(torch.tensor(key), class_weights(prior, labels), MANY, range(1), MANY)
    losses = -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    noise = float(losses[rows].std()) / MANY**0.5
    assert abs(float(risk(rows, True) - risk(WHOLE, False))) <= 6 * noise + 1e-9


def test_a_row_without_weight_is_never_drawn_and_others_as_often_as_they_weigh():
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0, 5.0, 0.0])
    (rows,) = prior_draws(KEY, weights, MANY, range(1), MANY)
    shares = np.bincount(rows.numpy(), minlength=6) / MANY
    np.testing.assert_allclose(shares, weights.numpy() / 8, atol=0.012)
    assert shares[0] == shares[2] == shares[5] == 0


def test_an_epoch_has_as_many_rows_as_the_batch_has_samples():
    weights = torch.ones(820)
    sizes = [len(rows) for rows in prior_draws(KEY, weights, 16, range(2), 4)]
    assert sizes == [4] * 8
    assert [len(rows) for rows in prior_draws(KEY, weights, 10, range(1), 4)] == [4, 4, 4]
    assert [len(rows) for rows in prior_draws(KEY, weights, 10, range(1), 2**31)] == [10]
    first, second = prior_draws(KEY, weights, 16, range(2), 16)
    assert not torch.equal(first, second)


def test_clients_draw_on_their_own():
    keys, weights = torch.tensor([1, 2]), torch.rand(2, 30, generator=torch.Generator().manual_seed(0))
    together = vmap(lambda key, one: torch.stack(prior_draws(key, one, 8, range(1), 4)))(keys, weights)
    for rows, key, one in zip(together, keys, weights, strict=True):
        assert torch.equal(rows, torch.stack(prior_draws(key, one, 8, range(1), 4)))


def test_a_step_on_many_drawn_rows_is_a_step_on_the_whole_reference_set(deployment):
    start = trainable(deployment)
    many, whole = (
        training(deployment, MANY, "prior", batch_size=MANY),
        training(deployment, 20, "epoch", batch_size=1000),
    )
    drawn, _ = many.joint(start, deployment.parameters, many.steps(range(1)), ())
    exact, _ = whole.joint(start, deployment.parameters, whole.steps(range(1)), ())
    errors = torch.cat([(drawn[name] - exact[name]).flatten() for name in start])
    lengths = torch.cat([(exact[name] - value).flatten() for name, value in start.items()])
    assert 0 < errors.norm() < 0.05 * lengths.norm()


@pytest.mark.parametrize("objective", ["bbse", "bbse+entropy", "entropy"])
def test_features_that_are_computed_once_change_nothing(deployment, objective):
    """The personal step on the head is a joint step that moves the head alone."""
    work = training(deployment, 20, "prior", objective, Optimiser(name="adamw", clip=0.5))
    head = trainable_personal(deployment)
    steps = work.steps(range(2))
    assert len(steps) == 6
    state = work.optimiser.start(head)
    (once, after), (anew, expected) = (
        step(head, deployment.parameters, steps, state) for step in (work.personal, work.joint)
    )
    assert after.steps == expected.steps == 6
    for name, value in head.items():
        torch.testing.assert_close(once[name], anew[name], atol=1e-5, rtol=1e-4)
        assert not torch.equal(once[name], value)


def test_without_epochs_nothing_moves(deployment):
    work, head = training(deployment, 20, "prior"), trainable_personal(deployment)
    moved, _ = work.personal(head, deployment.parameters, work.steps(range(0)), ())
    assert all(torch.equal(moved[name], value) for name, value in head.items())


def test_an_optimiser_goes_on_where_it_stopped(deployment):
    """Two steps at once are two rounds of one, with the state that the first left."""
    work = training(deployment, 20, "prior", optimiser=Optimiser(name="adamw", weight_decay=0.1), batch_size=20)
    start, steps = trainable(deployment), work.steps(range(2))
    both, _ = work.joint(start, deployment.parameters, steps, work.optimiser.start(start))
    moved, state = start, work.optimiser.start(start)
    for step in steps:
        moved, state = work.joint(moved, deployment.parameters, [step], state)
    forgetful, _ = work.joint(
        work.joint(start, deployment.parameters, steps[:1], work.optimiser.start(start))[0],
        deployment.parameters,
        steps[1:],
        work.optimiser.start(start),
    )
    for name, value in both.items():
        torch.testing.assert_close(value, moved[name], atol=1e-6, rtol=1e-5)
    assert any((value - forgetful[name]).abs().max() > 1e-4 for name, value in both.items())
