"""A monitor for an adapter: accuracy without labels, an alarm, and a net under the method."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedade.adapter.appearance import HeldOutAppearance
from fedade.adapter.choosing import choose_method
from fedade.adapter.judging import DeployedComparison, Verdict
from fedade.adapter.monitoring import FittedMonitor
from fedade.adapter.simulated_drift import rehearse
from fedade.core.method import ClientContext, Deployment, Method, Plan
from fedade.core.precision import without_autocast
from fedade.core.tree import Tree
from fedade.engine.client import refuse_misshapen
from fedade.parts.priors import calibrated_probabilities
from fedade.scenarios.held_out import as_held_out, check_classes


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
        fitted = FittedMonitor.fit(probabilities, labels, deployment.mean_prediction, rehearsal, inputs, seen)
        return cls(fitted, chosen.card.reweights)

    def begin(self, deployment: Deployment) -> Tree:
        """Nothing is known of the stream yet."""
        return self.fitted.begin(), self.comparison.begin(deployment)

    def judge(
        self, ctx: ClientContext, memory: Tree, plan: Plan, probabilities: Tensor, number: int
    ) -> tuple[Tree, Verdict]:
        """The estimate after a batch, and whether the client should begin afresh."""
        prior = {"prior": plan["prior"]} if self.reads_prior and "prior" in plan else {}
        appearance = self.fitted.seen.moments(ctx.inputs)
        state, estimate = self.fitted.update(memory[0], probabilities, prior, appearance)
        compared, verdict = self.comparison.judge(ctx, memory[1], plan, probabilities, number)
        low, high = estimate.interval.tolist()
        return (state, compared), verdict._replace(
            estimated_accuracy=float(estimate.estimated_accuracy),
            accuracy_interval=(low, high),
            alarm=bool(estimate.alarm),
            alarm_reason=estimate.reason or None,
        )
