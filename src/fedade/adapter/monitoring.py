"""How is it doing? Accuracy of a client's predictions without labels, with an interval, and an alarm.

Every prediction gets a chance of being right: a logistic regression on its own confidence, on how unsure the latest
predictions are together, and on how far the latest inputs lie from held-out ones (`appearance.py`). It is fitted on
held-out labelled data and, where there is one, on a rehearsal of drift made from them (`simulated_drift.py`), since
confidence overstates accuracy the more, the further inputs move. The mean chance of the last samples is the estimate.
Where inputs lie further away than any that were rehearsed accuracy cannot be told, and the monitor says that.

The alarm sums by how much chances fall short of what held-out data have under the estimated class frequencies, beyond
a loss that is tolerated (CUSUM: Page, 1954). Nothing depends on how samples are cut into batches but what the method
itself makes of them."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.adapter import accuracy_estimation as estimation
from fedade.adapter.accuracy_estimation import chances, correct, fit_chances
from fedade.adapter.appearance import HeldOutAppearance, moments
from fedade.adapter.simulated_drift import Rehearsal
from fedade.maths.losses import entropy
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
    moved: Tensor
    """`[500]`: total variation between that prior and what predictions are corrected from."""
    appearance: Tensor
    """`[2, D]`: moments of what the latest inputs look like."""
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
    outside: Tensor
    """bool: whether inputs lie further from held-out ones than any that were rehearsed."""
    alarm: Tensor
    """bool"""

    @property
    def reason(self) -> str:
        """Why there is an alarm, in one line; empty without one."""
        if not self.alarm:
            return ""
        if self.outside:
            return "inputs lie further from the held-out ones than any that were rehearsed: accuracy cannot be told"
        loss = 100 * (self.expected_accuracy - self.estimated_accuracy).item()
        return (
            f"estimated accuracy {self.estimated_accuracy.item():.2f} is {loss:.0f} points below the "
            f"{self.expected_accuracy.item():.2f} of the deployed model with these class frequencies"
        )


class FittedMonitor(NamedTuple):
    """All that estimates are made from. Axes: m held-out samples, K classes."""

    probabilities: Tensor
    """`[m, K]`: calibrated, of the deployed model on held-out data."""
    labels: Tensor  # [m]
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
    seen: HeldOutAppearance
    near: Tensor
    """`[]`: mean distance of as many held-out inputs as tell how far others are: by chance alone."""
    furthest: Tensor
    """`[]`: greatest distance from held-out inputs that was rehearsed; infinite without a rehearsal."""

    @classmethod
    def fit(
        cls,
        probabilities: Tensor,
        labels: Tensor,
        mean_prediction: Tensor | None = None,
        rehearsal: Rehearsal | None = None,
        inputs: Tensor | None = None,
        seen: HeldOutAppearance | None = None,
        tolerated: float = 0.05,
    ) -> "FittedMonitor":
        """From calibrated held-out probabilities `[m, K]` and labels `[m]`; `mean_prediction` is theirs by default.
        `inputs` are the held-out ones and `seen` what they look like; without them inputs are not looked at."""
        mean = probabilities.mean(0) if mean_prediction is None else mean_prediction
        none = probabilities.new_zeros(())
        # As many held-out samples in each block as tell how unsure predictions are and how far inputs
        draws = torch.Generator().manual_seed(0)
        rows = torch.randint(len(labels), (BLOCKS, RECENT), generator=draws).to(labels.device)
        if inputs is None or seen is None:
            inputs = torch.zeros(len(labels), 1, dtype=torch.int64, device=labels.device)
            seen = HeldOutAppearance.fit(inputs, labels, len(mean))
        looks = seen.looks(inputs)
        # Not all blocks at once: rows of a table may be long.
        distances = torch.cat([seen.distance(moments(looks[some]), mean) for some in torch.split(rows, 100)])
        held_out = _measured(probabilities, entropy(probabilities).mean(), distances.mean())
        right, furthest = correct(probabilities, labels), none + torch.inf
        if rehearsal is None:
            # With one law there is nothing to learn of other ones: confidence keeps its meaning.
            confident = fit_chances(held_out[:, :2], right)
            weights, uncertainty = torch.cat([confident, none.expand(held_out.shape[1] - 2)]), none + 1
        else:
            rehearsed = seen.distance(rehearsal.appearance, rehearsal.prior)
            furthest = rehearsed.amax() if rehearsed.any() else furthest
            weights, uncertainty = _rehearsed(rehearsal, rehearsed, mean, held_out, right)
        # What is unsure together is less likely together: the alarm's limit comes from blocks of held-out samples.
        blocks, near = probabilities[rows], distances.mean()
        drawn = chances(_measured(blocks, entropy(blocks).mean(-1), distances), weights)
        excesses = (drawn.mean() - drawn - tolerated).sum(-1)
        limit = estimation.shortfall_limit(excesses, BLOCKS_TO_FALSE_ALARM)
        return cls(probabilities, labels, mean, weights, uncertainty, none + tolerated, limit, seen, near, furthest)

    def begin(self) -> MonitorState:
        """Before the first batch."""
        empty, zero = self.probabilities.new_zeros(WINDOW), self.probabilities.new_zeros(())
        return MonitorState(empty, empty, empty, empty, self.seen.by_class.mean(0), zero, zero)

    def update(
        self, state: MonitorState, probabilities: Tensor, plan: Mapping[str, Tensor], appearance: Tensor | None = None
    ) -> tuple[MonitorState, Estimate]:
        """After a batch `[n, K]` of a method's predictions, with the `prior` of its plan and its inputs' moments. A
        plan without `prior` says that predictions are not corrected for one."""
        prior = plan.get("prior", self.mean_prediction)
        expected, expected_accuracy = self.expected(prior)
        moved = (prior - self.mean_prediction).abs().sum() / 2
        doubts = _latest(state.doubts, _doubts(probabilities, prior, self.mean_prediction))
        samples = (state.samples + len(probabilities)).clamp(max=WINDOW)
        latest = samples.clamp(max=max(RECENT, len(probabilities)))
        shown = state.appearance if appearance is None else appearance
        shown = state.appearance + (len(probabilities) / latest.clamp(min=1)) * (shown - state.appearance)
        far = self.seen.distance(shown, prior)
        measured = _measured(probabilities, _mean_of_last(doubts, latest), far.minimum(self.furthest))
        drawn = chances(measured, self.weights)
        shortfall = estimation.cumulative_shortfall(state.shortfall, expected - drawn - self.tolerated)
        kept = _latest(state.chances, drawn), _latest(state.expected, expected.expand(len(drawn)))
        moved = _latest(state.moved, moved.expand(len(drawn)))
        state = MonitorState(*kept, doubts, moved, shown, samples, shortfall.clamp(max=2 * self.limit))
        # A few samples may look strange by chance.
        return state, self._estimate(state, expected_accuracy, (far > self.furthest) & (samples >= RECENT))

    def expected(self, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Mean chance and accuracy of the held-out data, were classes as frequent as this prior says."""
        shares = torch.bincount(self.labels, minlength=len(prior)).clamp(min=1)
        weights = (prior / shares)[self.labels]
        weights = weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
        corrected = reweight(self.probabilities, prior, self.mean_prediction)
        doubt = (weights * entropy(self.probabilities)).sum()
        drawn = chances(_measured(corrected, doubt, self.near), self.weights)
        return (weights * drawn).sum(), (weights * correct(corrected, self.labels)).sum()

    def _estimate(self, state: MonitorState, expected_accuracy: Tensor, outside: Tensor) -> Estimate:
        mean = _mean_of_last(state.chances, state.samples)
        loss = (_mean_of_last(state.expected, state.samples) - mean).clamp(min=0)
        spread = _mean_of_last(state.chances * (1 - state.chances), state.samples).sqrt()
        fitted = (mean * (1 - mean) / len(self.labels)).sqrt()
        errors = torch.stack([fitted, self.uncertainty * loss, self._mistaken(state)])
        width = estimation.half_width(spread, state.samples, errors.square().sum(0).sqrt(), QUANTILE_90)
        interval = torch.stack([torch.where(outside, 0, mean - width), mean + width]).clamp(0, 1)
        return Estimate(mean, interval, expected_accuracy, outside, outside | (state.shortfall > self.limit))

    def _mistaken(self, state: MonitorState) -> Tensor:
        """Deviation of an estimate's error where a prior was found among unsure predictions: it may be wrong, and makes
        them sure. How far the prior moved times how much less is known than usual, as a share of log K."""
        usual = entropy(self.probabilities).mean()
        unsure = (_mean_of_last(state.doubts, state.samples) - usual).clamp(min=0) / math.log(len(self.mean_prediction))
        return _mean_of_last(state.moved, state.samples) * unsure


def _measured(probabilities: Tensor, doubt: Tensor, far: Tensor) -> Tensor:
    """`[..., n, 6]`: a constant, the log odds of the confidence, how unsure recent predictions are and its square, how
    far recent inputs lie from held-out ones, and the log odds times that, since far away they mean less."""
    odds = estimation.log_odds(estimation.confidence(probabilities))
    doubt, far = doubt[..., None].expand_as(odds), far[..., None].expand_as(odds)
    return torch.stack([torch.ones_like(odds), odds, doubt, doubt.square(), far, far * odds], -1)


def _doubts(probabilities: Tensor, prior: Tensor, mean_prediction: Tensor) -> Tensor:
    """Entropy of predictions, freed of the prior: a wrong prior makes predictions sure, but not right."""
    freed = probabilities * (mean_prediction / prior.clamp(min=_FEWEST)).unsqueeze(-2)
    return entropy(freed / freed.sum(-1, keepdim=True).clamp_min(torch.finfo(freed.dtype).tiny))


def _rehearsed(
    rehearsal: Rehearsal, distances: Tensor, mean_prediction: Tensor, held_out: Tensor, held_out_right: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights, and how far off an estimated loss is as a share of it: under disturbances that were not fitted on."""
    doubts = _doubts(rehearsal.probabilities, rehearsal.prior, mean_prediction).mean(-1)
    measured = _measured(rehearsal.probabilities, doubts, distances)
    right = correct(rehearsal.probabilities, rehearsal.labels)

    def fitted(batches: Tensor) -> Tensor:
        return _fit_falling(held_out, held_out_right, measured[batches].flatten(0, 1), right[batches].flatten())

    errors, losses = [], []
    for number in sorted(set(rehearsal.disturbance.tolist())):
        own = rehearsal.disturbance == number
        accuracy = right[own].float().mean()
        errors.append(chances(measured[own], fitted(~own)).mean() - accuracy)
        losses.append(held_out_right.float().mean() - accuracy)
    error, loss = (torch.stack(values).square().mean() for values in (errors, losses))
    share = (error / loss.clamp_min(torch.finfo(loss.dtype).tiny)).sqrt().clamp(max=1)
    return fitted(rehearsal.disturbance >= 0), share


def _fit_falling(held_out: Tensor, held_out_right: Tensor, measured: Tensor, right: Tensor) -> Tensor:
    """Weights that are calibrated on held-out data, and under which chances do not rise with doubt or distance. A
    disturbance that broke the method, sure of itself, can look as if doubt were good: that would be believed further
    away. What the rehearsal teaches is by how much chances fall beyond what doubt and distance are on held-out data."""
    confident = fit_chances(held_out[:, :2], held_out_right)
    usual = held_out[0, 2:5]  # the same for all
    odds = measured[:, 1]
    beyond = measured[:, 2:5] - usual
    beyond = torch.cat([beyond, (beyond[:, 2] * odds).unsqueeze(-1)], -1)
    learned, used = beyond.new_zeros(4), torch.ones(4, dtype=torch.bool, device=beyond.device)
    for _ in range(3):
        learned = torch.where(used, fit_chances(beyond * used, right, known=measured[:, :2] @ confident), 0.0)
        by_doubt = (learned[:2] * beyond[:, :2].amax(0)).sum()
        by_distance = learned[2] + odds.median() * learned[3]
        if by_doubt > 0:
            used[:2] = False
        elif by_distance > 0:
            used[2:] = False
    constant, slope = confident[0] - usual @ learned[:3], confident[1] - usual[2] * learned[3]
    return torch.cat([torch.stack([constant, slope]), learned])


def _latest(ring: Tensor, values: Tensor) -> Tensor:
    return torch.cat([ring, values.to(ring)])[-WINDOW:]


def _mean_of_last(ring: Tensor, samples: Tensor) -> Tensor:
    filled = torch.arange(WINDOW, device=ring.device) >= WINDOW - samples
    return (ring * filled).sum() / samples.clamp(min=1)
