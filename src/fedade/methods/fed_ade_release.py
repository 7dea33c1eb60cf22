"""What the authors' released code does under the name of Fed-ADE (h2w1/Fed-ADE at ad36802a), switch by switch.

Every field is one row of the audit in docs/deviations.md (section 1, row numbers under the fields) and defaults to the
released behaviour. With all of them at the paper's value this is `fed-ade`, bit for bit.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.normalisation import FROZEN, RecordingStatistics
from fedade.core.tree import Tree
from fedade.maths.counter import uniform
from fedade.maths.signals.dynamics import combined_dynamics
from fedade.parts.composition import own_model, own_prediction, trainable_part
from fedade.parts.norm_layers import follow, statistics_names, warn_without_batch_norm
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import joint_step, phase_states
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.summaries import FeatureSummary, PredictionSummary, Signals, Summary, signals, summarise
from fedade.parts.training import ReferenceDraws, Training, dropped

WHOLE_BATCH = 2**31
_DROPOUT = 1000
"""Its draws are apart from those of the epochs, which are numbered from 0."""


class ReleaseClient(NamedTuple):
    """A client's own tensors (the whole model where no broadcast comes), its summaries, and its optimisers' states."""

    own: dict[str, Tensor]
    previous: Summary
    states: PhaseStates


class FedAdeRelease(FederatedMethod[ReleaseClient, Shared]):
    """Entropy minimisation without federation, with noisier signals than the paper's."""

    rate: RateBounds = RateBounds()
    prior: Estimator = "simplex_ls"
    joint_epochs: int = Field(2, ge=0)
    personal_epochs: int = Field(2, ge=0)
    batch_size: int = Field(WHOLE_BATCH, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """How much of the reference set an epoch reads."""
    optimiser: Optimiser = Optimiser()
    objective: ObjectiveName = "entropy"
    """The loss, row 1. Paper: bbse."""
    broadcast: bool = False
    """Whether the average reaches the clients, row 2. Paper: true."""
    fixed_participants: bool = True
    """Whether round r selects the same clients at every timestep, row 3. Paper: false."""
    prediction_summary: PredictionSummary = "histogram"
    """What is remembered of predictions, row 4. Paper: softmax."""
    feature_reference: Literal["previous", "average"] = "average"
    """What features are compared with, row 5. Paper: previous."""
    feature_summary: FeatureSummary = "once"
    """How features are normalised, row 6. Paper: per-sample."""
    signal_per: Literal["timestep", "draw"] = "draw"
    """When the signal is computed, rows 7 and 12. Paper: timestep."""
    signal_pass: Literal["eval", "train"] = "train"
    """Mode of the pass for predictions, row 8. Paper: eval."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout on the stream's features in training mode, row 8. Paper: 0."""
    order: Literal["joint-first", "personal-first"] = "personal-first"
    """Order of the steps, row 9. Paper: joint-first."""
    weights: Literal["samples", "uniform"] = "uniform"
    """Weights of the average, row 10. Paper: samples."""
    normalisation: Literal["frozen", "running"] = "running"
    """Statistics of BatchNorm, row 11. Paper: frozen."""
    momentum: float = Field(0.1, ge=0, le=1)
    """Weight of a pass in the running statistics."""
    first_signal: Literal["reference", "zero"] = "zero"
    """Signal before there is a previous batch, row 13. Paper: reference."""

    @property
    def card(self) -> Card:
        return Card(
            summary="what the authors' released code does: entropy loss, no broadcast, BatchNorm follows the batch",
            paper="h2w1/Fed-ADE at ad36802a",
            reads_deployed=True,
            reference=OBJECTIVES[self.objective].examples[0] == "reference",
        )

    @property
    def keeps_participants(self) -> bool:
        return self.fixed_participants

    def begin(self, ctx: ClientContext) -> ReleaseClient:
        """Whatever moves and is not broadcast belongs to the client."""
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        if self.normalisation == "running":
            warn_without_batch_norm(deployment, "fed-ade-release", "no statistics follow the batch here")
        own = deployment.personal
        if not self.broadcast:
            own |= self.begin_server(deployment)
        uniform = torch.full_like(deployment.source_prior, 1 / deployment.num_classes)
        known = self.first_signal == "reference"
        feature = deployment.initial_feature if known else torch.zeros_like(deployment.initial_feature)
        return ReleaseClient(own, Summary(uniform, feature), phase_states(deployment, self.optimiser))

    def observe(self, ctx: ClientContext, state: ReleaseClient) -> tuple[ReleaseClient, Plan]:
        """The signals, unless they are left to the draws: then whoever is not drawn learns nothing."""
        prior = batch_prior(ctx, self.prior)
        if self.signal_per == "draw":
            nothing = torch.zeros_like(prior[0])
            return state, self._plan(Signals(nothing, nothing, nothing), prior)
        state, measured = self._signals(ctx, state)
        return state, self._plan(measured, prior)

    def local_round(self, ctx: RoundContext, state: ReleaseClient, plan: Plan) -> tuple[ReleaseClient, Plan, Shared]:
        """Signals where they belong to the draw, the steps in their order, and an upload."""
        if self.signal_per == "draw":
            state, measured = self._signals(ctx, state)
            plan = self._plan(measured, plan["prior"])
        epochs = range(self.joint_epochs)
        if self.order == "personal-first":
            state = self._personal(ctx, state, plan, range(self.personal_epochs))
            epochs = range(self.personal_epochs, self.personal_epochs + self.joint_epochs)
        own, states, uplink = joint_step(self._training(ctx, plan), state.own, state.states, epochs)
        return state._replace(own=own, states=states), plan, uplink

    def personalise(self, ctx: RoundContext, state: ReleaseClient, plan: Plan) -> tuple[ReleaseClient, Plan]:
        if self.order == "joint-first":
            epochs = range(self.joint_epochs, self.joint_epochs + self.personal_epochs)
            state = self._personal(ctx, state, plan, epochs)
        return state, plan

    def predict(self, ctx: ClientContext, state: ReleaseClient) -> Tensor:
        return own_prediction(ctx, state.own)

    def begin_server(self, deployment: Deployment) -> Shared:
        """What gradient steps move, and running statistics where they follow the batch."""
        moving = {*deployment.network.trainable()}
        if self.normalisation == "running":
            moving |= {*statistics_names(deployment)}
        return {name: value for name, value in deployment.shared.items() if name in moving}

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: Shared, weights: Tensor
    ) -> tuple[Shared, Tree]:
        """An average that, without a broadcast, no client ever computes with."""
        sizes = weights if self.weights == "samples" else torch.ones_like(weights)
        return super().aggregate(deployment, shared, uplinks, sizes)

    def _plan(self, measured: Signals, prior: Tensor) -> Plan:
        rate, told = self.rate.rate("adaptive", measured.combined), zip(("s_unc", "s_rep", "s"), measured, strict=True)
        return {"learning_rate": rate, **dict(told), "prior": prior}

    def _signals(self, ctx: ClientContext, state: ReleaseClient) -> tuple[ReleaseClient, Signals]:
        """q, z and S; the pass for q may be in training mode, the one for z never is."""
        network, model, own = ctx.deployment.network, own_model(ctx, state.own), state.own
        features = seen_by_head = ctx.own_features(model)
        if self.signal_pass == "train":
            recording = RecordingStatistics()
            seen_by_head = network.represent(model, ctx.inputs, recording)
            mask = self._dropout_mask(ctx)
            seen_by_head = seen_by_head if mask is None else dropped(seen_by_head, mask)
            own = own | follow(own, recording.seen, self.momentum)
        probabilities = network.classify(model, seen_by_head).softmax(-1)
        vectors = network.summarise(features)
        current = summarise(probabilities, vectors, self.prediction_summary, self.feature_summary)
        measured = signals(state.previous, current)
        unknown = (state.previous.feature == 0).all()
        if self.first_signal == "zero":
            unc = torch.where(ctx.timestep == 1, 0.0, measured.unc)
            rep = torch.where(unknown, 0.0, measured.rep)
            measured = Signals(unc, rep, combined_dynamics(unc, rep))
        if self.feature_reference == "average":
            blend = normalize(0.9 * state.previous.feature + 0.1 * current.feature, dim=-1)
            current = current._replace(feature=torch.where(unknown, current.feature, blend))
        return state._replace(own=own, previous=current), measured

    def _personal(self, ctx: RoundContext, state: ReleaseClient, plan: Plan, epochs: range) -> ReleaseClient:
        """Steps on the head; in training mode the frozen body's statistics move all the same (row 11)."""
        deployment, model = ctx.deployment, own_model(ctx, state.own)
        training = self._training(ctx, plan)
        steps = training.steps(epochs)
        moved, personal = training.personal(trainable_part(deployment, state.own), model, steps, state.states.personal)
        own = state.own | moved
        if self.normalisation == "running":
            recording = RecordingStatistics()
            deployment.network.represent(model, ctx.inputs, recording)
            for _ in steps:
                own |= follow(own, recording.seen, self.momentum)
        return state._replace(own=own, states=state.states._replace(personal=personal))

    def _dropout_mask(self, ctx: ClientContext) -> Tensor | None:
        """Which features of the batch are dropped in training mode, the others scaled up."""
        if not self.dropout:
            return None
        feature = ctx.deployment.initial_feature
        drawn = uniform(ctx.key, (len(ctx.inputs), len(feature)), _DROPOUT)
        return (drawn >= self.dropout).to(feature.dtype) / (1 - self.dropout)

    def _training(self, ctx: RoundContext, plan: Plan) -> Training:
        objective, passes = OBJECTIVES[self.objective], FROZEN if self.normalisation == "frozen" else None
        draws, mask = self.reference_draws, self._dropout_mask(ctx)
        return Training(ctx, objective, plan, self.batch_size, self.optimiser, draws, passes, self.momentum, mask)
