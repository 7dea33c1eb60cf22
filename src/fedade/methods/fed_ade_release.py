"""What the authors' released code does under the name of Fed-ADE (h2w1/Fed-ADE at ad36802a), switch by switch.

Every field is one row of the audit in docs/deviations.md (section 1, row numbers beside the fields) and defaults to the
released behaviour. With all of them at the paper's value this is `fed-ade`, bit for bit.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import normalize

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation
from fedade.core.normalisation import FROZEN, Recording
from fedade.core.split import Parameters
from fedade.maths.counter import uniform
from fedade.maths.dynamics import combined_dynamics
from fedade.parts.composition import effective, trainable_part
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import phase_states
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.statistics import follow, statistics_names, warn_without_batch_norm
from fedade.parts.summaries import FeatureSummary, PredictionSummary, Signals, Summary, signals, summarise
from fedade.parts.training import ReferenceDraws, Training, dropped
from fedade.parts.vectors import average

WHOLE_BATCH = 2**31
_DROPOUT = 1000
"""Its draws are apart from those of the epochs, which are numbered from 0."""


class ReleaseClient(NamedTuple):
    """A client's own tensors (the whole model where no broadcast comes), its summaries, and its optimisers' states."""

    own: dict[str, Tensor]
    previous: Summary
    states: PhaseStates


class FedAdeRelease(BaseModel):
    """Entropy minimisation without federation, with noisier signals than the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    prior: Estimator = "simplex_ls"
    joint_epochs: int = Field(2, ge=0)
    personal_epochs: int = Field(2, ge=0)
    batch_size: int = Field(WHOLE_BATCH, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    optimiser: Optimiser = Optimiser()
    objective: ObjectiveName = "entropy"  # row 1; paper: bbse
    broadcast: bool = False  # row 2; paper: True
    fixed_participants: bool = True  # row 3; paper: False
    prediction_summary: PredictionSummary = "histogram"  # row 4; paper: softmax
    feature_reference: Literal["previous", "average"] = "average"  # row 5; paper: previous
    feature_summary: FeatureSummary = "once"  # row 6; paper: per-sample
    signal_per: Literal["timestep", "draw"] = "draw"  # rows 7 and 12; paper: timestep
    signal_pass: Literal["eval", "train"] = "train"  # row 8; paper: eval
    dropout: float = Field(0.5, ge=0, lt=1)  # row 8, on the features in training mode; paper: 0
    order: Literal["joint-first", "personal-first"] = "personal-first"  # row 9; paper: joint-first
    weights: Literal["samples", "uniform"] = "uniform"  # row 10; paper: samples
    normalisation: Literal["frozen", "running"] = "running"  # row 11; paper: frozen
    momentum: float = Field(0.1, ge=0, le=1)
    first_signal: Literal["reference", "zero"] = "zero"  # row 13; paper: reference

    @property
    def card(self) -> Card:
        return Card(
            summary="what the authors' released code does: entropy loss, no broadcast, BatchNorm follows the batch",
            paper="h2w1/Fed-ADE at ad36802a",
            reference=OBJECTIVES[self.objective].examples[0] == "reference",
        )

    # Client

    def init_client(self, deployment: Deployment) -> ReleaseClient:
        """Whatever moves and is not broadcast belongs to the client."""
        refuse_unsafe_inverse(deployment, self.prior)
        if self.normalisation == "running":
            warn_without_batch_norm(deployment, "fed-ade-release", "no statistics follow the batch here")
        own = deployment.personal
        if not self.broadcast:
            own |= self.init_server(deployment)
        uniform = torch.full_like(deployment.source_prior, 1 / deployment.num_classes)
        known = self.first_signal == "reference"
        feature = deployment.initial_feature if known else torch.zeros_like(deployment.initial_feature)
        return ReleaseClient(own, Summary(uniform, feature), phase_states(deployment, self.optimiser))

    def observe(
        self, deployment: Deployment, client: ReleaseClient, shared: Parameters, observation: Observation
    ) -> tuple[ReleaseClient, dict[str, Tensor]]:
        """The signals, unless they are left to the draws: then whoever is not drawn learns nothing."""
        prior = batch_prior(deployment, observation.inputs, self.prior)
        if self.signal_per == "draw":
            nothing = torch.zeros_like(prior[0])
            return client, self._plan(Signals(nothing, nothing, nothing), prior)
        client, found = self._signals(deployment, client, shared, observation, observation.key)
        return client, self._plan(found, prior)

    def local_round(
        self,
        deployment: Deployment,
        client: ReleaseClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        observation: Observation,
        key: Tensor,
    ) -> tuple[ReleaseClient, dict[str, Tensor], dict[str, Tensor]]:
        """Signals where they belong to the draw, the steps in their order, and an upload."""
        if self.signal_per == "draw":
            client, found = self._signals(deployment, client, shared, observation, key)
            plan = self._plan(found, plan["prior"])
        epochs = range(self.joint_epochs)
        if self.order == "personal-first":
            client = self._personal(deployment, client, plan, shared, observation, key, range(self.personal_epochs))
            epochs = range(self.personal_epochs, self.personal_epochs + self.joint_epochs)
        moving = self._moving(deployment, {**shared, **client.own})
        training = self._training(deployment, plan, observation, key)
        moved, state = training.joint(
            moving,
            effective(deployment, shared, client.own),
            training.minibatches(key, epochs, self.batch_size),
            client.states.joint,
        )
        own = {name: moved.get(name, value) for name, value in client.own.items()}
        client = client._replace(own=own, states=client.states._replace(joint=state))
        return client, plan, {name: moved[name] for name in shared}

    def personalise(
        self,
        deployment: Deployment,
        client: ReleaseClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        downlink: tuple[()],
        observation: Observation,
        key: Tensor,
    ) -> tuple[ReleaseClient, dict[str, Tensor]]:
        """The personal step, unless it came first."""
        if self.order == "joint-first":
            epochs = range(self.joint_epochs, self.joint_epochs + self.personal_epochs)
            client = self._personal(deployment, client, plan, shared, observation, key, epochs)
        return client, plan

    def predict(self, deployment: Deployment, client: ReleaseClient, shared: Parameters, inputs: Tensor) -> Tensor:
        """The client's model in evaluation mode, with its running statistics."""
        return deployment.network.logits(effective(deployment, shared, client.own), inputs).softmax(-1)

    # Server

    def init_server(self, deployment: Deployment) -> dict[str, Tensor]:
        """The shared tensors that move; running statistics move too."""
        return self._moving(deployment, deployment.shared)

    def aggregate(
        self,
        deployment: Deployment,
        server: Parameters,
        uplinks: Parameters,
        weights: Tensor,
    ) -> tuple[dict[str, Tensor], tuple[()]]:
        """An average that, without a broadcast, no client ever computes with."""
        sizes = weights if self.weights == "samples" else torch.ones_like(weights)
        return average(uplinks, sizes), ()

    # Pieces

    def _moving(self, deployment: Deployment, tensors: Parameters) -> dict[str, Tensor]:
        """Those that gradient steps move, and running statistics where they follow the batch."""
        moving = {*deployment.network.trainable()}
        if self.normalisation == "running":
            moving |= {*statistics_names(deployment)}
        return {name: value for name, value in tensors.items() if name in moving}

    def _plan(self, found: Signals, prior: Tensor) -> dict[str, Tensor]:
        rate = self.rate.rate("adaptive", found.combined)
        return {
            "learning_rate": rate,
            "s_unc": found.unc,
            "s_rep": found.rep,
            "s": found.combined,
            "prior": prior,
        }

    def _signals(
        self,
        deployment: Deployment,
        client: ReleaseClient,
        shared: Parameters,
        observation: Observation,
        key: Tensor,
    ) -> tuple[ReleaseClient, Signals]:
        """q, z and S; the pass for q may be in training mode, the one for z never is."""
        network, model, own = deployment.network, effective(deployment, shared, client.own), client.own
        features = network.represent(model, observation.inputs)
        seen_by_head = features
        if self.signal_pass == "train":
            recording = Recording()
            seen_by_head = network.represent(model, observation.inputs, recording)
            mask = self._dropout_mask(deployment, observation, key)
            seen_by_head = seen_by_head if mask is None else dropped(seen_by_head, mask)
            own = own | follow(own, recording.seen, self.momentum)
        probabilities = network.classify(model, seen_by_head).softmax(-1)
        seen = network.summarise(features)
        current = summarise(probabilities, seen, self.prediction_summary, self.feature_summary)
        found = signals(client.previous, current)
        unknown = (client.previous.feature == 0).all()
        if self.first_signal == "zero":
            unc = torch.where(observation.timestep == 1, 0.0, found.unc)
            rep = torch.where(unknown, 0.0, found.rep)
            found = Signals(unc, rep, combined_dynamics(unc, rep))
        if self.feature_reference == "average":
            blend = normalize(0.9 * client.previous.feature + 0.1 * current.feature, dim=-1)
            current = current._replace(feature=torch.where(unknown, current.feature, blend))
        return client._replace(own=own, previous=current), found

    def _personal(
        self,
        deployment: Deployment,
        client: ReleaseClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        observation: Observation,
        key: Tensor,
        epochs: range,
    ) -> ReleaseClient:
        """Steps on the head; in training mode the frozen body's statistics move all the same (row 11)."""
        model = effective(deployment, shared, client.own)
        training = self._training(deployment, plan, observation, key)
        steps = training.minibatches(key, epochs, self.batch_size)
        moved, state = training.personal(trainable_part(deployment, client.own), model, steps, client.states.personal)
        own = client.own | moved
        if self.normalisation == "running":
            recording = Recording()
            deployment.network.represent(model, observation.inputs, recording)
            for _ in steps:
                own |= follow(own, recording.seen, self.momentum)
        return client._replace(own=own, states=client.states._replace(personal=state))

    def _dropout_mask(self, deployment: Deployment, observation: Observation, key: Tensor) -> Tensor | None:
        """Which features of the batch are dropped in training mode, the others scaled up."""
        if not self.dropout:
            return None
        feature = deployment.initial_feature
        drawn = uniform(key, (len(observation.inputs), len(feature)), _DROPOUT)
        return (drawn >= self.dropout).to(feature.dtype) / (1 - self.dropout)

    def _training(
        self,
        deployment: Deployment,
        plan: dict[str, Tensor],
        observation: Observation,
        key: Tensor,
    ) -> Training:
        return Training(
            deployment,
            OBJECTIVES[self.objective],
            observation.inputs,
            plan["prior"],
            plan["learning_rate"],
            FROZEN if self.normalisation == "frozen" else None,
            self.momentum,
            self._dropout_mask(deployment, observation, key),
            self.optimiser,
            self.reference_draws,
        )
