"""How is it doing? Accuracy of a client's predictions without labels, with an interval, and an alarm.

Every prediction gets a chance of being right: a logistic regression on its own confidence and on how unsure the latest
predictions are together. It is fitted on held-out labelled data and, where there is one, on a rehearsal of drift made
from them (`simulated_drift.py`), since confidence overstates accuracy the more, the further inputs move. The mean
chance of the last samples is the estimate.

The alarm sums, sample by sample, by how much chances fall short of what held-out data have under the estimated class
frequencies, beyond a loss that is tolerated (CUSUM: Page, 1954). Tensors in, tensors out; nothing depends on how
samples are cut into batches but what the method itself makes of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.adapter.accuracy_estimation import (
    chances,
    confidence,
    correct,
    cumulative_shortfall,
    fit_chances,
    half_width,
    log_odds,
    negative_entropy,
    shortfall_limit,
)
from fedade.adapter.simulated_drift import Rehearsal
from fedade.maths.priors.reweighting import reweight

WINDOW = 500
"""Samples that an estimate is of."""
RECENT = 50
"""Samples that tell how unsure predictions are together, at least."""
QUANTILE_90 = 1.645
BLOCKS, BLOCKS_TO_FALSE_ALARM = 2000, 1e5
"""Blocks of recent samples that the alarm's limit is found from, and in how many it is raised once without a shift.

That is 100 times rarer than it must be, because methods make blocks depend on one another."""
_FEWEST = 1e-4
"""Share of a class at least, before predictions are freed of the prior that they were corrected by."""


class MonitorState(NamedTuple):
    """What is known of the last samples; oldest first."""

    chances: Tensor
    """`[500]`, of being right."""
    expected: Tensor
    """`[500]`: mean chance of held-out data under the class frequencies that were estimated with each sample."""
    doubts: Tensor
    """`[500]`: entropy of each prediction, freed of the prior."""
    samples: Tensor
    """`[]`: how many of them are filled, from the end."""
    shortfall: Tensor
    """`[]`: the alarm's sum."""


class Estimate(NamedTuple):
    """What the monitor says after a batch; scalars but for the interval."""

    estimated_accuracy: Tensor
    interval: Tensor
    """`[2]`: holds the accuracy of these samples 9 times in 10, as far as drift resembles what was rehearsed."""
    expected_accuracy: Tensor
    """What the deployed model would have with these class frequencies on inputs as they were held out."""
    alarm: Tensor
    """bool"""

    @property
    def reason(self) -> str:
        """Why there is an alarm, in one line; empty without one."""
        if not self.alarm:
            return ""
        loss = 100 * (self.expected_accuracy - self.estimated_accuracy).item()
        return (
            f"estimated accuracy {self.estimated_accuracy.item():.2f} is {loss:.0f} points below the "
            f"{self.expected_accuracy.item():.2f} of the deployed model with these class frequencies"
        )


class FittedMonitor(NamedTuple):
    """All that estimates are made from. Axes: m held-out samples, K classes."""

    probabilities: Tensor
    """`[m, K]`: calibrated, of the deployed model on held-out data."""
    labels: Tensor
    """`[m]`"""
    mean_prediction: Tensor
    """`[K]`: what predictions are corrected from."""
    weights: Tensor
    """What each measurement of a sample counts."""
    uncertainty: Tensor
    """`[]`: error of an estimated loss, as a share of it."""
    tolerated: Tensor
    """`[]`: loss of accuracy that never raises the alarm."""
    limit: Tensor
    """`[]`: what the alarm's sum must exceed."""

    @classmethod
    def fit(
        cls,
        probabilities: Tensor,
        labels: Tensor,
        mean_prediction: Tensor | None = None,
        rehearsal: Rehearsal | None = None,
        tolerated: float = 0.05,
    ) -> "FittedMonitor":
        """From calibrated held-out probabilities `[m, K]` and labels `[m]`; `mean_prediction` is theirs by default."""
        mean = probabilities.mean(0) if mean_prediction is None else mean_prediction
        none = probabilities.new_zeros(())
        held_out = _measured(probabilities, -negative_entropy(probabilities).mean())
        right = correct(probabilities, labels)
        if rehearsal is None:
            # With one law there is nothing to learn of other ones: confidence keeps its meaning.
            weights, uncertainty = torch.cat([fit_chances(held_out[:, :2], right), none.expand(2)]), none + 1
        else:
            weights, uncertainty = _rehearsed(rehearsal, mean, held_out, right)
        limit = _limit(probabilities, weights, tolerated)
        return cls(probabilities, labels, mean, weights, uncertainty, none + tolerated, limit)

    def begin(self) -> MonitorState:
        """Before the first batch."""
        empty = self.probabilities.new_zeros(WINDOW)
        return MonitorState(empty, empty, empty, empty.new_zeros(()), empty.new_zeros(()))

    def update(
        self, state: MonitorState, probabilities: Tensor, plan: Mapping[str, Tensor]
    ) -> tuple[MonitorState, Estimate]:
        """After a batch `[n, K]` of a method's predictions, with the `prior` of its plan.

        A plan without `prior` says that predictions are not corrected for one.
        """
        prior = plan.get("prior", self.mean_prediction)
        expected, expected_accuracy = self.expected(prior)
        doubts = _latest(state.doubts, _doubts(probabilities, prior, self.mean_prediction))
        samples = (state.samples + len(probabilities)).clamp(max=WINDOW)
        recent = _mean_of_last(doubts, samples.clamp(max=max(RECENT, len(probabilities))))
        drawn = chances(_measured(probabilities, recent), self.weights)
        shortfall = cumulative_shortfall(state.shortfall, expected - drawn - self.tolerated).clamp(max=2 * self.limit)
        state = MonitorState(
            _latest(state.chances, drawn),
            _latest(state.expected, expected.expand(len(drawn))),
            doubts,
            samples,
            shortfall,
        )
        return state, self._estimate(state, expected_accuracy)

    def expected(self, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Mean chance and accuracy of the held-out data, were classes as frequent as this prior says."""
        shares = torch.bincount(self.labels, minlength=len(prior)).clamp(min=1)
        weights = (prior / shares)[self.labels]
        weights = weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
        corrected = reweight(self.probabilities, prior, self.mean_prediction)
        doubt = (weights * -negative_entropy(self.probabilities)).sum()
        drawn = chances(_measured(corrected, doubt), self.weights)
        return (weights * drawn).sum(), (weights * correct(corrected, self.labels)).sum()

    def _estimate(self, state: MonitorState, expected_accuracy: Tensor) -> Estimate:
        mean = _mean_of_last(state.chances, state.samples)
        loss = (_mean_of_last(state.expected, state.samples) - mean).clamp(min=0)
        spread = _mean_of_last(state.chances * (1 - state.chances), state.samples).sqrt()
        fitted = (mean * (1 - mean) / len(self.labels)).sqrt()
        width = half_width(
            spread, state.samples, (fitted.square() + (self.uncertainty * loss).square()).sqrt(), QUANTILE_90
        )
        interval = torch.stack([mean - width, mean + width]).clamp(0, 1)
        return Estimate(mean, interval, expected_accuracy, state.shortfall > self.limit)


def _measured(probabilities: Tensor, doubt: Tensor) -> Tensor:
    """`[..., n, 4]`: a constant, the log odds of the confidence, how unsure recent predictions are, and its square."""
    odds = log_odds(confidence(probabilities))
    doubt = doubt[..., None].expand_as(odds)
    return torch.stack([torch.ones_like(odds), odds, doubt, doubt.square()], -1)


def _doubts(probabilities: Tensor, prior: Tensor, mean_prediction: Tensor) -> Tensor:
    """Entropy of predictions, freed of the prior: a wrong prior makes predictions sure, but not right."""
    freed = probabilities * (mean_prediction / prior.clamp(min=_FEWEST)).unsqueeze(-2)
    return -negative_entropy(freed / freed.sum(-1, keepdim=True).clamp_min(torch.finfo(freed.dtype).tiny))


def _rehearsed(
    rehearsal: Rehearsal, mean_prediction: Tensor, held_out: Tensor, held_out_right: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights, and how far off an estimated loss is as a share of it: under disturbances that were not fitted on."""
    doubts = _doubts(rehearsal.probabilities, rehearsal.prior, mean_prediction).mean(-1)
    measured, right = _measured(rehearsal.probabilities, doubts), correct(rehearsal.probabilities, rehearsal.labels)

    def fitted(batches: Tensor) -> Tensor:
        together = torch.cat([held_out, measured[batches].flatten(0, 1)])
        return fit_chances(together, torch.cat([held_out_right, right[batches].flatten()]))

    errors, losses = [], []
    for number in sorted(set(rehearsal.disturbance.tolist())):
        own = rehearsal.disturbance == number
        accuracy = right[own].float().mean()
        errors.append(chances(measured[own], fitted(~own)).mean() - accuracy)
        losses.append(held_out_right.float().mean() - accuracy)
    error, loss = (torch.stack(values).square().mean() for values in (errors, losses))
    share = (error / loss.clamp_min(torch.finfo(loss.dtype).tiny)).sqrt().clamp(max=1)
    return fitted(rehearsal.disturbance >= 0), share


def _limit(probabilities: Tensor, weights: Tensor, tolerated: float) -> Tensor:
    """Limit of the alarm's sum, from blocks of held-out samples: what is unsure together is less likely together."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(probabilities), (BLOCKS, RECENT), generator=generator).to(probabilities.device)
    blocks = probabilities[rows]
    drawn = chances(_measured(blocks, -negative_entropy(blocks).mean(-1)), weights)
    return shortfall_limit((drawn.mean() - drawn - tolerated).sum(-1), BLOCKS_TO_FALSE_ALARM)


def _latest(ring: Tensor, values: Tensor) -> Tensor:
    return torch.cat([ring, values.to(ring)])[-WINDOW:]


def _mean_of_last(ring: Tensor, samples: Tensor) -> Tensor:
    filled = torch.arange(WINDOW, device=ring.device) >= WINDOW - samples
    return (ring * filled).sum() / samples.clamp(min=1)
