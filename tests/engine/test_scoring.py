"""What labels say of probabilities, beyond accuracy."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.engine.scoring import CONFIDENCE_BINS, LABELLED_COLUMNS, Quality, quality

from ..helpers import quick, run


@st.composite
def answered(draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities `[n, K]` and labels `[n]`; some classes are ruled out."""
    n, classes = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    weights = draw(st.lists(st.integers(0, 9), min_size=n * classes, max_size=n * classes))
    matrix = torch.tensor(weights, dtype=torch.float64).reshape(n, classes) + 1e-9
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return matrix / matrix.sum(-1, keepdim=True), torch.tensor(labels)


@given(answered())
def test_it_is_what_the_definitions_say(batch):
    probabilities, labels = (one.numpy() for one in batch)
    found = quality(*batch)
    n, classes = probabilities.shape
    rows = np.arange(n)
    truth = np.eye(classes)[labels]
    np.testing.assert_allclose(found.nll, -np.log(probabilities[rows, labels].clip(1e-7)).mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.brier, ((probabilities - truth) ** 2).sum(1).mean(), atol=1e-5)
    np.testing.assert_allclose(found.confidence, probabilities.max(1).mean(), atol=1e-5)
    answers = batch[0].float().argmax(-1).numpy()
    assert found.class_samples.tolist() == np.bincount(labels, minlength=classes).tolist()
    assert found.class_hits.tolist() == np.bincount(labels[answers == labels], minlength=classes).tolist()


@given(answered())
def test_bins_and_classes_hold_every_sample_once(batch):
    found, (n, _) = quality(*batch), batch[0].shape
    assert found.confidence_samples.shape == (CONFIDENCE_BINS,)
    assert found.confidence_samples.sum() == found.class_samples.sum() == n
    assert found.confidence_hits.sum() == found.class_hits.sum()
    assert (found.confidence_hits <= found.confidence_samples).all()
    np.testing.assert_allclose(found.confidence_sums.sum(), n * found.confidence, rtol=1e-4)
    low = found.confidence_samples * torch.arange(CONFIDENCE_BINS) / CONFIDENCE_BINS
    assert (found.confidence_sums >= low - 1e-4).all()


def test_certain_answers_lie_in_the_last_bin_and_a_wrong_one_costs_a_finite_amount():
    found = quality(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    assert found.confidence_samples.tolist() == [0] * 9 + [2]
    assert found.confidence_hits.tolist() == [0] * 9 + [1]
    assert torch.isfinite(found.nll)
    assert found.brier == 1


def test_the_trace_holds_them_and_they_agree_with_its_accuracy(scenario_factory):
    for name in ("source", "fed-ade"):  # without rounds, and with them
        for rows in run(quick(name), scenario_factory(), rounds=1):
            assert set(Quality._fields) <= rows.keys()
            hits = rows["accuracy_post"] * rows["n"]
            np.testing.assert_allclose(rows["class_hits"].sum(1), hits)
            np.testing.assert_allclose(rows["confidence_hits"].sum(1), hits)
            assert (rows["class_samples"].sum(1) == rows["n"]).all()
    assert set(LABELLED_COLUMNS) < set(Quality._fields)
