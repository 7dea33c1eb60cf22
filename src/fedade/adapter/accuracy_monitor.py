"""A monitor for an adapter: accuracy without labels, an alarm, and a net under the method."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedade.adapter.appearance import HeldOutAppearance
from fedade.adapter.choosing import choose_method
from fedade.adapter.judging import DeployedComparison, Verdict
from fedade.adapter.monitoring import FittedMonitor
from fedade.adapter.simulated_drift import Rehearsal, rehearse
from fedade.core.method import ClientContext, Deployment, Method, Plan
from fedade.core.precision import without_autocast
from fedade.core.tree import Tree
from fedade.engine.client import refuse_misshapen
from fedade.maths.priors.reweighting import apply_temperature
from fedade.parts.priors import calibrated_probabilities
from fedade.scenarios.held_out import as_held_out, check_classes

_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class AccuracyMonitor:
    """Estimates the accuracy of a client's last predictions, and compares the client with the deployed model.

    Measured on an image network, where it holds, and on small networks of tables, where its alarm is of use and its
    estimate is not (docs/accuracy-estimates.md): so an adapter has none unless it is given one.
    """

    fitted: FittedMonitor
    reads_prior: bool
    """Whether the method corrects its predictions by the prior of its plan."""
    comparison: DeployedComparison = field(default_factory=DeployedComparison)
    temperature: Tensor | None = None
    """Of a method that does not calibrate its answers, what they are calibrated with before they are judged."""

    @classmethod
    @torch.no_grad()
    @without_autocast()
    def rehearsed(
        cls, deployment: Deployment, held_out: tuple[Any, Any], method: str | Method = "fed-ade-plus", **settings: Any
    ) -> "AccuracyMonitor":
        """Fitted on held-out data and on how the method does when they are disturbed: 80 batches of 50.

        `held_out` are labelled data that the model was not trained on, best others than the reference set.

        >>> import fedade
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> held_out = torch.rand(60, 4), torch.arange(60) % 3
        >>> deployment = fedade.deploy(model, held_out)
        >>> monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out)
        >>> adapter = fedade.Adapter(deployment, monitor=monitor)
        >>> probabilities = adapter(torch.rand(50, 4))
        >>> 0 <= adapter.status.estimated_accuracy <= 1
        True
        """
        chosen = choose_method(method, settings)
        inputs, labels = (part.to(deployment.source_prior.device) for part in as_held_out(held_out))
        refuse_misshapen(inputs, deployment.reference.inputs, "held_out", "pass data of the model that was deployed")
        check_classes(labels, deployment.num_classes)
        features = deployment.network.represent(deployment.parameters, inputs)
        probabilities = calibrated_probabilities(deployment, features)
        seen = HeldOutAppearance.fit(inputs, labels, deployment.num_classes)
        rehearsal = rehearse(chosen, deployment, inputs, labels, seen)
        temperature = _left_to_do(rehearsal, deployment.temperature)
        rehearsal = rehearsal._replace(probabilities=_tempered(rehearsal.probabilities, temperature))
        fitted = FittedMonitor.fit(probabilities, labels, deployment.mean_prediction, rehearsal, inputs, seen)
        return cls(fitted, chosen.card.reweights, temperature=temperature)

    def begin(self, deployment: Deployment) -> Tree:
        """Nothing is known of the stream yet."""
        return self.fitted.begin(), self.comparison.begin(deployment)

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """The estimate after a batch, and whether the client should begin afresh."""
        prior = {"prior": plan["prior"]} if self.reads_prior and "prior" in plan else {}
        appearance = self.fitted.seen.moments(ctx.inputs)
        calibrated = _tempered(probabilities, self.temperature)
        state, estimate = self.fitted.update(memory[0], calibrated, prior, appearance)
        compared, verdict = self.comparison.judge(ctx, memory[1], plan, probabilities, number)
        low, high = estimate.interval.tolist()
        return (state, compared), verdict._replace(
            estimated_accuracy=float(estimate.estimated_accuracy),
            accuracy_interval=(low, high),
            alarm=bool(estimate.alarm),
            alarm_reason=estimate.reason or None,
        )


def _left_to_do(rehearsal: Rehearsal, temperature: Tensor) -> Tensor | None:
    """The deployed temperature for a method that does not calibrate its answers, which those to undisturbed inputs
    tell; held-out predictions, with which answers are compared, are calibrated."""
    usual = rehearsal.disturbance == 0
    labels = rehearsal.labels[usual].unsqueeze(-1)
    as_they_are, calibrated = (
        _tempered(rehearsal.probabilities[usual], by).gather(-1, labels).clamp_min(_TINY).log().sum()
        for by in (None, temperature)
    )
    return temperature if calibrated > as_they_are else None


def _tempered(probabilities: Tensor, temperature: Tensor | None) -> Tensor:
    if temperature is None:
        return probabilities
    return apply_temperature(probabilities.clamp_min(_TINY).log(), temperature).softmax(-1)
