"""What federated baselines do alike: a fixed rate, the batch's prior, and steps on one objective."""

from typing import Generic, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedade.core.method import ClientContext, Deployment, FederatedMethod, Plan, RoundContext, State
from fedade.parts.composition import trainable, trainable_personal
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, OptimiserState, PhaseStates
from fedade.parts.priors import Estimator, batch_prior
from fedade.parts.rates import RateBounds
from fedade.parts.training import ReferenceDraws, Training


class Learner(NamedTuple):
    """What a client keeps: tensors of its own, and what its optimiser remembers."""

    own: dict[str, Tensor]
    state: OptimiserState


class Participant(NamedTuple):
    """What a client keeps that takes joint and personal steps: its tensors, and the states of both optimisers."""

    own: dict[str, Tensor]
    states: PhaseStates


def phase_states(deployment: Deployment, optimiser: Optimiser) -> PhaseStates:
    """The states of two optimisers before their first step: one moves ψ and φ, the other φ alone."""
    return PhaseStates(optimiser.start(trainable(deployment)), optimiser.start(trainable_personal(deployment)))


def fixed_plan(ctx: ClientContext, rate: float, estimator: Estimator) -> Plan:
    """A plan that ignores every signal: one rate for all, and the prior that the estimated risk needs."""
    prior = batch_prior(ctx, estimator)
    return {"learning_rate": torch.full_like(prior[0], rate), "prior": prior}


class FixedRateBaseline(FederatedMethod[State, dict[str, Tensor]], Generic[State]):
    """A federated baseline that descends Fed-ADE's label-free objective at its middle rate."""

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    optimiser: Optimiser = Optimiser()

    @property
    def reads_reference(self) -> bool:
        """Whether the objective needs labelled data."""
        return "reference" in OBJECTIVES[self.objective].examples

    def reads_deployed_features(self, deployment: Deployment) -> bool:
        return True

    def observe(self, ctx: ClientContext, state: State) -> tuple[State, Plan]:
        return state, fixed_plan(ctx, self.rate.mid, self.prior)

    def training(self, ctx: RoundContext, plan: Plan) -> Training:
        """A participant's descent of the objective."""
        objective = OBJECTIVES[self.objective]
        return Training(ctx, objective, plan, self.batch_size, self.optimiser, self.reference_draws)
