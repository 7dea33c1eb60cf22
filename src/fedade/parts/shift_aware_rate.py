"""The paper's learning rate alone, for any PyTorch training loop."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedade.maths.signals.dynamics import adaptive_rate
from fedade.parts.summaries import Signals, Summary, signals, summarise


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
