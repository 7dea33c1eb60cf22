"""What a client remembers of a batch, and how far two batches lie apart."""

from typing import Literal, NamedTuple

from torch import Tensor

from fedade.maths.signals import dynamics

PredictionSummary = Literal["softmax", "histogram"]
FeatureSummary = Literal["per-sample", "once"]


class Summary(NamedTuple):
    """q and z of one batch: K + d floats."""

    prediction: Tensor
    feature: Tensor


class Signals(NamedTuple):
    """S_unc, S_rep and their combination, each in [0, 1]."""

    unc: Tensor
    rep: Tensor
    combined: Tensor


def summarise(
    probabilities: Tensor,
    features: Tensor,
    prediction: PredictionSummary = "softmax",
    feature: FeatureSummary = "per-sample",
) -> Summary:
    """q (eq:batch_q) and z (eq:z_mean); the other choices are those of the released code."""
    q = {"softmax": dynamics.mean_prediction, "histogram": dynamics.prediction_histogram}[prediction]
    z = {"per-sample": dynamics.mean_feature, "once": dynamics.mean_feature_normalised_once}[feature]
    return Summary(q(probabilities), z(features))


def signals(previous: Summary, current: Summary) -> Signals:
    return combine(
        dynamics.uncertainty_dynamics(previous.prediction, current.prediction),
        dynamics.representation_dynamics(previous.feature, current.feature),
    )


def combine(unc: Tensor, rep: Tensor, use_unc: bool = True, use_rep: bool = True) -> Signals:
    """Both signals with their combination (eq:S_combined), from which either can be left out."""
    return Signals(unc, rep, dynamics.combined_dynamics(unc, rep, use_unc, use_rep))
