"""What federated baselines do alike: a fixed rate, the batch's prior, and steps on one objective."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import FROZEN
from fedade.parts.objectives import OBJECTIVES, Objective, ObjectiveName
from fedade.parts.optimisers import Optimiser, OptimiserState, PhaseStates
from fedade.parts.priors import Estimator, batch_prior
from fedade.parts.training import Minibatches, ReferenceDraws, Training


class Learner(NamedTuple):
    """What a client keeps: tensors of its own, and what its optimiser remembers."""

    own: dict[str, Tensor]
    state: OptimiserState


class Participant(NamedTuple):
    """The same of a client that takes two kinds of steps."""

    own: dict[str, Tensor]
    states: PhaseStates


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


def phase_states(deployment: Deployment, optimiser: Optimiser) -> PhaseStates:
    """The states of two optimisers before their first step: one moves ψ and φ, the other φ alone."""
    return PhaseStates(optimiser.start(trainable(deployment)), optimiser.start(trainable_personal(deployment)))


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
    optimiser: Optimiser
    reference_draws: ReferenceDraws = "epoch"

    def steps(self, epochs: range) -> Minibatches:
        """The minibatches of the numbered epochs."""
        return self.training.minibatches(self.key, epochs, self.batch_size)

    @property
    def training(self) -> Training:
        """Gradient steps at the plan's rate, with the deployed normalisation statistics."""
        return Training(
            self.deployment,
            self.objective,
            self.inputs,
            self.plan.get("prior", self.deployment.source_prior),
            self.plan["learning_rate"],
            FROZEN,
            optimiser=self.optimiser,
            reference_draws=self.reference_draws,
        )


class LabelFree(Protocol):
    """Settings of a method that descends a label-free objective."""

    @property
    def objective(self) -> ObjectiveName: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def optimiser(self) -> Optimiser: ...

    @property
    def reference_draws(self) -> ReferenceDraws: ...


def label_free_work(
    settings: LabelFree, deployment: Deployment, inputs: Tensor, plan: dict[str, Tensor], key: Tensor
) -> LocalWork:
    """One participant's descent of the objective that its method's settings name."""
    objective, optimiser = OBJECTIVES[settings.objective], settings.optimiser
    return LocalWork(deployment, objective, settings.batch_size, inputs, plan, key, optimiser, settings.reference_draws)
