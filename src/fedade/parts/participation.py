"""What participants do alike: the two steps of a round of Algorithm 1, and all of a baseline with a fixed rate."""

from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.split import Parameters
from fedade.parts.composition import own_model, own_prediction, trainable, trainable_part, trainable_personal
from fedade.parts.norm_layers import statistics_names
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds, constant_rate
from fedade.parts.training import ReferenceDraws, Training

_NOTHING: Parameters = MappingProxyType({})


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
    return {"learning_rate": constant_rate(rate, prior[0]), "prior": prior}


class FixedRateBaseline(FederatedMethod[Participant, Shared]):
    """A federated baseline that descends Fed-ADE's label-free objective at its middle rate; the whole model is shared,
    and nothing a client's own, unless it says otherwise."""

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        labelled = "reference" in OBJECTIVES[self.objective].examples
        return replace(self.about, reference=labelled, reads_deployed=True)

    def own_part(self, deployment: Deployment) -> dict[str, Tensor]:
        """What a client keeps of the model, as deployed."""
        return {}

    def begin(self, ctx: ClientContext) -> Participant:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        shared, own = self.begin_server(ctx.deployment), self.own_part(ctx.deployment)
        return Participant(own, PhaseStates(self.optimiser.start(shared), self.optimiser.start(own)))

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable(deployment)

    def observe(self, ctx: ClientContext, state: Participant) -> tuple[Participant, Plan]:
        return state, fixed_plan(ctx, self.rate.mid, self.prior)

    def predict(self, ctx: ClientContext, state: Participant) -> Tensor:
        return own_prediction(ctx, state.own)

    def training(self, ctx: RoundContext, plan: Plan) -> Training:
        objective = OBJECTIVES[self.objective]
        return Training(ctx, objective, plan, self.batch_size, self.optimiser, self.reference_draws)


def joint_step(
    training: Training, own: Parameters, states: PhaseStates, epochs: range, unmoved: Parameters = _NOTHING
) -> tuple[dict[str, Tensor], PhaseStates, dict[str, Tensor]]:
    """Lines 11 and 12 (eq:local_joint_update): the client's own tensors, its optimisers' states, and ψ to send.
    `unmoved` are tensors that the client computes with and no step moves, such as statistics."""
    ctx, names = training.ctx, training.deployment.network.trainable()
    if training.normalisation is None:  # in training mode statistics follow
        names |= {*statistics_names(training.deployment)}
    moving = {**ctx.shared, **{name: value for name, value in own.items() if name in names}}
    moved, state = training.joint(moving, own_model(ctx, {**own, **unmoved}), training.steps(epochs), states.joint)
    kept = {name: moved.get(name, value) for name, value in own.items()}
    return kept, states._replace(joint=state), {name: moved[name] for name in ctx.shared}


def personal_step(
    training: Training, own: Parameters, states: PhaseStates, epochs: range, unmoved: Parameters = _NOTHING
) -> tuple[dict[str, Tensor], PhaseStates]:
    """Lines 17 and 18 (eq:local_personal_update): φ moves while the broadcast ψ̄ is frozen."""
    fixed = own_model(training.ctx, {**own, **unmoved})
    moving = trainable_part(training.deployment, own)
    moved, state = training.personal(moving, fixed, training.steps(epochs), states.personal)
    return {**own, **moved}, states._replace(personal=state)
