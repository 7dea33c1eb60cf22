"""Whether an adapted client still does better than the deployed model, judged without labels."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.method import Plan
from fedade.core.tree import Tree
from fedade.maths.losses.entropy import entropy
from fedade.maths.priors.calibration import apply_temperature
from fedade.maths.priors.reweighting import reweight


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
        ...

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """What is remembered after batch `number`, whose predictions these are, and the verdict."""
        ...


@dataclass(frozen=True)
class InformationComparison:
    """Compares now and then how much the predictions tell apart, with those of the deployed model on the same batch.

    The measure is the mutual information of input and class, H(mean p) − mean H(p), in units of log K: a client that
    collapsed to a class, or guesses, has none. The deployed model's predictions are first corrected by the client's own
    class prior, so that a stream of few classes is no reason to worry.
    """

    every: int = 8
    """Batches from one comparison to the next; each costs a forward pass."""
    margin: float = 0.15
    """By how much less an adapted client may tell."""
    fewest: int = 16
    """Samples below which a batch says too little."""

    def begin(self, deployment: Deployment) -> Tree:
        return ()

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """Worse where the adapted predictions tell clearly less."""
        if number % self.every or len(probabilities) < self.fewest:
            return memory, Verdict()
        deployed = deployed_probabilities(ctx)
        if "prior" in plan:
            deployed = reweight(deployed, plan["prior"], ctx.deployment.mean_prediction)
        scale = math.log(probabilities.shape[-1])
        adapted, before = (float(information(each)) / scale for each in (probabilities, deployed))
        if before - adapted <= self.margin:
            return memory, Verdict()
        return memory, Verdict(
            f"adapted predictions tell {adapted:.2f} of the classes, the deployed model's {before:.2f}"
        )


def information(probabilities: Tensor) -> Tensor:
    """Mutual information of input and predicted class, in nats."""
    return entropy(probabilities.mean(0)) - entropy(probabilities).mean()


def deployed_probabilities(ctx: ClientContext) -> Tensor:
    """Calibrated class probabilities of the deployed model."""
    deployment = ctx.deployment
    logits = deployment.network.classify(deployment.parameters, ctx.deployed_features())
    return torch.softmax(apply_temperature(logits, deployment.temperature), -1)
