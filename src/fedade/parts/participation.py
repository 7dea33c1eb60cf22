"""What federated baselines do alike: a fixed rate, the batch's prior, and plain SGD on one objective."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import FROZEN
from fedade.parts.objectives import Objective
from fedade.parts.priors import Estimator, batch_prior
from fedade.parts.training import Minibatches, Training, minibatches, num_examples


def trainable(deployment: Deployment) -> dict[str, Tensor]:
    """The deployed tensors that gradient steps may move; normalisation statistics stay where they are."""
    names = deployment.network.trainable()
    return {name: value for name, value in deployment.parameters.items() if name in names}


def trainable_shared(deployment: Deployment) -> dict[str, Tensor]:
    """Those of them that belong to ψ."""
    return deployment.split.shared(trainable(deployment))


def trainable_personal(deployment: Deployment) -> dict[str, Tensor]:
    """Those of them that belong to φ."""
    return deployment.split.private(trainable(deployment))


def fixed_plan(deployment: Deployment, inputs: Tensor, rate: float, estimator: Estimator) -> dict[str, Tensor]:
    """A plan that ignores every signal: one rate for all, and the prior that the estimated risk needs."""
    prior = batch_prior(deployment, inputs, estimator)
    return {"learning_rate": torch.full_like(prior[0], rate), "prior": prior}


@dataclass(frozen=True)
class LocalWork:
    """One participant's descent in one round."""

    deployment: Deployment
    objective: Objective
    batch_size: int
    inputs: Tensor
    """The stream's batch."""
    plan: dict[str, Tensor]
    key: Tensor

    def steps(self, epochs: range) -> Minibatches:
        """The minibatches of the numbered epochs."""
        size = num_examples(self.deployment, self.objective, len(self.inputs))
        return minibatches(self.key, size, epochs, self.batch_size)

    @property
    def training(self) -> Training:
        """Gradient steps at the plan's rate, with the deployed normalisation statistics."""
        rate = self.plan["learning_rate"]
        prior = self.plan.get("prior", self.deployment.source_prior)
        return Training(self.deployment, self.objective, self.inputs, prior, rate, FROZEN)
