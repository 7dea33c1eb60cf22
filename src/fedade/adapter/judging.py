"""Whether an adapted client still does better than the deployed model, judged without labels."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core.method import ClientContext, Deployment, Plan
from fedade.core.tree import Tree
from fedade.maths.losses import entropy, one_hot
from fedade.maths.priors.estimators import posterior_mode
from fedade.maths.priors.reweighting import reweight
from fedade.parts.priors import calibrated_probabilities, deployed_probabilities

NEW_COUNTS, ITERATIONS = 2.0, 20
"""Samples of the source prior that a batch's class frequencies start from, and steps to find them."""


class Verdict(NamedTuple):
    """What a monitor says after a batch."""

    worse: str | None = None
    """Why the deployed model should answer and the client begin afresh; None where it may go on."""
    estimated_accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    alarm: bool | None = None
    alarm_reason: str | None = None


class Monitor(Protocol):
    """Judges a client batch by batch; what it remembers is a tree of tensors, stored with the client's state."""

    def begin(self, deployment: Deployment) -> Tree:
        """What is remembered before the first batch."""

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """What is remembered after batch `number`, whose predictions these are, and the verdict."""


@dataclass(frozen=True)
class DeployedComparison:
    """Compares a client now and then with the deployed model, on samples of the same batch.

    Where the deployed model is as sure of itself as on held-out data with these class frequencies, it is the judge: its
    own posterior, under the frequencies that the batch has by it, says how often either is right. By how much less that
    is the client, beyond what is tolerated, is summed over comparisons (CUSUM: Page, 1954).

    Where inputs are strange to the deployed model it cannot judge. There both are asked how much they tell apart:
    mutual information of input and class, H(mean p) − mean H(p), in units of log K, of which a client that collapsed or
    guesses has none. Its predictions are first corrected by the client's own class prior, so that a stream of few
    classes is no reason to worry.
    """

    every: int = 4
    """Batches from one comparison to the next."""
    fewest: int = 16
    """Samples below which a batch says too little."""
    most: int = 24
    """Samples that are compared: each costs a forward pass of the deployed model."""
    strangeness: float = 0.05
    """By how much the deployed model's entropy may exceed that of held-out data, in units of log K, while it judges."""
    tolerated: float = 0.1
    """Shortfall of accuracy that never counts, and what the sum of the rest must exceed."""
    margin: float = 0.15
    """By how much less of the classes a client may tell."""

    def begin(self, deployment: Deployment) -> Tree:
        deployment.constant(entropy_by_class)  # measured before the first batch
        return torch.zeros_like(deployment.accuracy)

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """Now and then, on some samples of the batch."""
        if number % self.every or len(probabilities) < self.fewest:
            return memory, Verdict()
        stride = max(1, len(probabilities) // self.most)
        adapted, inputs = (values[::stride][: self.most] for values in (probabilities, ctx.inputs))
        asked = replace(ctx, inputs=inputs, passes={})
        logits = ctx.deployment.network.classify(ctx.deployment.parameters, asked.deployed_features())
        return self.compare(ctx.deployment, memory, plan, adapted, deployed_probabilities(asked), logits.softmax(-1))

    def compare(
        self,
        deployment: Deployment,
        total: Tensor,
        plan: Plan,
        adapted: Tensor,
        deployed: Tensor,
        uncalibrated: Tensor | None = None,
    ) -> tuple[Tensor, Verdict]:
        """The sum after a comparison of two predictions of the same samples, and the verdict; 0 after a bad one. Of the
        deployed model's they are calibrated; where they are given as it makes them, too, a client may be as unsure."""
        scale, usual = math.log(deployment.num_classes), deployment.mean_prediction
        prior = posterior_mode(deployed, usual, NEW_COUNTS * deployment.source_prior, ITERATIONS)
        unsure = entropy(deployed).mean() - prior @ deployment.constant(entropy_by_class)
        if unsure <= self.strangeness * scale:
            posterior = reweight(deployed, prior, usual)
            own, others = (posterior.gather(-1, each.argmax(-1, keepdim=True)).mean() for each in (deployed, adapted))
            total = (total + own - others - self.tolerated).clamp(min=0)
            worse = bool(total > self.tolerated)
            reason = f"by the deployed model {float(others):.0%} of the answers are right, {float(own):.0%} of its own"
        else:
            # Not all methods calibrate: what a model was trained to be unsure of (label smoothing) is no loss.
            either = [deployed] if uncalibrated is None else [deployed, uncalibrated]
            if "prior" in plan:
                either = [reweight(each, plan["prior"], usual) for each in either]
            before, after = (min(float(information(each)) for each in some) / scale for some in (either, [adapted]))
            worse = before - after > self.margin
            reason = f"adapted predictions tell {after:.2f} of the classes, the deployed model's {before:.2f}"
        return (torch.zeros_like(total), Verdict(reason)) if worse else (total, Verdict())


def entropy_by_class(deployment: Deployment) -> Tensor:
    """Mean entropy of the deployed model's predictions on the labelled data of each class, `[K]`."""
    unsure = entropy(calibrated_probabilities(deployment, deployment.reference_features))
    membership = one_hot(deployment.reference.labels, deployment.num_classes, unsure.dtype)
    counts = membership.sum(0)
    return torch.where(counts > 0, membership.mT @ unsure / counts.clamp(min=1), unsure.mean())


def information(probabilities: Tensor) -> Tensor:
    """Mutual information of input and predicted class, in nats."""
    return entropy(probabilities.mean(0)) - entropy(probabilities).mean()
