"""What a client remembers of a batch, how far two batches lie apart, and the paper's learning rate for any loop."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedade.maths.signals import dynamics
from fedade.maths.signals.dynamics import adaptive_rate

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


class ShiftAwareRate:
    """Sets an optimiser's learning rate from how far each batch has moved since the last one.

    Feed it the probabilities and features of every unlabelled batch; it keeps K + d floats.

    >>> weights = torch.zeros(3, requires_grad=True)
    >>> optimizer = torch.optim.SGD([weights], lr=0.1)
    >>> rate = ShiftAwareRate(optimizer, low=0.001, high=0.1)
    >>> calm = rate.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[1.0, 0.0]]))
    >>> moved = rate.update(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 1.0]]))
    >>> calm == 0.001 < moved == optimizer.param_groups[0]["lr"] <= 0.1
    True
    """

    def __init__(self, optimizer: Optimizer, low: float, high: float) -> None:
        adaptive_rate(torch.zeros(()), low, high)  # refuses bounds in the wrong order
        self.optimizer = optimizer
        self.low = low
        self.high = high
        self.previous: Summary | None = None
        self.signals: Signals | None = None
        """S_unc, S_rep and S of the last batch."""

    def update(self, probabilities: Tensor, features: Tensor) -> float:
        """The rate for this batch, `[n, K]` and `[n, d]`; the first batch, with nothing before it, gets `low`."""
        if not 0 < len(probabilities) == len(features):
            raise ValueError(
                f"the batch holds {len(probabilities)} probabilities and {len(features)} features; pass one row of "
                "each for every sample, and at least one"
            )
        if not (probabilities.isfinite().all() and features.isfinite().all()):
            raise ValueError("the batch holds NaN or infinite values; clean it before asking for a rate")
        current = summarise(probabilities.detach(), features.detach())
        self.signals = signals(self.previous or current, current)
        self.previous = current
        rate = float(adaptive_rate(self.signals.combined.double(), self.low, self.high))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def state_dict(self) -> dict[str, Any]:
        """What to save beside the optimiser's own state."""
        return {} if self.previous is None else dict(self.previous._asdict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.previous = Summary(**state) if state else None
